"""Tests of which topics are not those that were expected."""

import pytest

from snapreplay.service.core.topic_changes import TopicChange, changes

RECORDED = {"in": "A", "log": "B"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"in": "A", "log": "B"}, (), id="the-same"),
        pytest.param({"in": "C", "log": "B"}, (TopicChange("in", "A", "C"),), id="created-again"),
        pytest.param({"log": "B"}, (TopicChange("in", "A", None),), id="missing"),
        pytest.param({"in": "", "log": "B"}, (), id="a-cluster-without-ids"),
        pytest.param({"in": "A", "log": "B", "new": "C"}, (), id="never-recorded"),
    ],
)
def test_another_id_or_none_is_a_change(found, expected):
    """What was not recorded, and what the cluster has no id for, says nothing."""
    assert changes(["in", "log", "new"], RECORDED, found) == expected

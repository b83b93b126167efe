"""Tests of what the watch over the cluster's topics means for one partition."""

from types import SimpleNamespace
from typing import Any

from snapreplay.service.partition.incarnation import TopicsSeen

CONTEXT: Any = SimpleNamespace(increments=SimpleNamespace(topic="log"), snapshots=SimpleNamespace(topic="snaps"))
RECORDED = {"in": "A", "log": "B", "snaps": "C"}


def test_an_input_is_reported_each_time():
    """Looking again costs little, not looking may cost everything."""
    seen = TopicsSeen(CONTEXT)
    for _ in range(2):
        assert [each.found_id for each in seen.inputs(RECORDED, RECORDED | {"in": "Z", "log": "Z"})] == ["Z"]


def test_an_own_topic_is_reported_once_by_the_second_look():
    """A broker that lags may not know it yet; and once more when it is again what is recorded."""
    seen, looks = TopicsSeen(CONTEXT), ["Z", "Z", "Z", "B", "Z", "B", "B"]
    found = [seen.own(RECORDED, RECORDED | {"log": topic_id}) for topic_id in looks]
    assert [None if each is None else [change.topic for change in each] for each in found] == [
        *(None, ["log"], None, None, None, None, [])
    ]

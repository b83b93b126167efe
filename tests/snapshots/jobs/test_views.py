"""The rows of the views, of a log in memory. As DataFrames: `test_source`."""

import re

import pytest

from snapreplay.snapshots.jobs.views import VIEWS
from snapreplay.snapshots.proof.state import At, StateUnreachable
from tests.support.audited_topics import MemoryLogs
from tests.support.compacting import now, told


def batches(story, view, **bounds):
    logs = MemoryLogs(story.topics, story.app_id, 0)
    blocks = VIEWS[view].blocks(now(story), logs, At(**bounds))
    return [int(str(batch)) for block in blocks for batch in block["batch"]]


def test_changes_begin_and_end_where_they_are_asked_to():
    """Both bounds are included."""
    story = told()
    assert set(batches(story, "changes", from_batch=3, batch=4)) == {3, 4}
    assert batches(story, "increments", from_batch=3) == [3, 4, 5]
    assert batches(story, "increments", from_batch=9) == []
    every = batches(story, "changes")
    assert [b for b in every if b > 1] == batches(story, "changes", from_batch=2)


def test_changes_that_were_trimmed_are_not_left_out_silently():
    """The read fails and names the first batch that can be asked for."""
    story = told()
    story.trim(
        0, story.partitions[0].written["batch2"][-1], 0
    )  # the increment is kept, its changes are not
    with pytest.raises(StateUnreachable, match="the changes of batch 2 are gone") as refused:
        batches(story, "changes", from_batch=2)
    (first,) = re.findall(r"from (\d+) on", refused.value.hint)
    assert set(batches(story, "changes", from_batch=int(first))) == {3, 4}

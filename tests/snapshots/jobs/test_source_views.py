"""The rows of the views, of a log in memory. As DataFrames: `test_source`."""

import re

import pyarrow as pa
import pytest
from msgspec.structs import replace

from snapreplay.snapshots.jobs.source import VIEWS
from snapreplay.snapshots.proof.state import At, StateUnreachable
from tests.support.audited_log import Fault
from tests.support.compacting import logs_of, now, told


def batches(story, view, **bounds):
    blocks = VIEWS[view].blocks(now(story), logs_of(story), At(**bounds))
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
    story.trim(0, story.partitions[0].written["batch2"][-1], 0)  # the increment is kept, its changes are not
    with pytest.raises(StateUnreachable, match="the changes of batch 2 are gone") as refused:
        batches(story, "changes", from_batch=2)
    (first,) = re.findall(r"from (\d+) on", refused.value.hint)
    assert set(batches(story, "changes", from_batch=int(first))) == {3, 4}


@pytest.mark.parametrize(("shard_count", "touched"), [(4, 5000), (1, None)])
def test_what_looks_like_a_stamp_is_one_only_in_a_map(shard_count, touched):
    """A state of the app's own, which has one shard, may have values of any bytes."""
    story = told(stages=["claim", "genesis"])
    story.partitions[0].state = {b"k1-2": b"\xc1" + bytes(7) + b"\x05\x01", b"k1-4": b"\x02"}
    sharded = Fault("manifest1", manifest=lambda m: replace(m, shard_count=shard_count))
    story.tell({0: sharded}, ["snapshot1", "batch5"])
    assert touched_of(story) == {b"k1-2": touched, b"k1-4": None}


def touched_of(story):
    found: dict[bytes, int | None] = {}
    for block in VIEWS["state"].blocks(now(story), logs_of(story), At()):
        touched = block["touched_at"]
        told = touched.to_pylist() if isinstance(touched, pa.Array) else touched
        found |= dict(zip(block["key"], told, strict=True))
    return found

"""The rows of the views, of a log in memory. As DataFrames: `test_source`."""

import pyarrow as pa

from snapreplay.snapshots.jobs.source import VIEWS
from snapreplay.snapshots.proof.state import At
from tests.support.compacting import logs_of, now, told


def test_a_stamp_is_shown_as_the_time_of_the_last_touch():
    story = told(stages=["claim", "genesis"])
    story.partitions[0].state = {b"k1-2": b"\xc1" + bytes(7) + b"\x05\x01", b"k1-4": b"\x02"}
    story.tell({}, ["snapshot1", "batch5"])
    assert touched_of(story) == {b"k1-2": 5000, b"k1-4": None}


def touched_of(story):
    found: dict[bytes, int | None] = {}
    for block in VIEWS["state"].blocks(now(story), logs_of(story), At()):
        touched = block["touched_at"]
        told = touched.to_pylist() if isinstance(touched, pa.Array) else touched
        found |= dict(zip(block["key"], told, strict=True))
    return found

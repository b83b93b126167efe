"""The rows of the views, of a log in memory. As DataFrames: `test_source`."""

import pyarrow as pa
import pytest

from snapreplay.snapshots.jobs.source import VIEWS
from snapreplay.snapshots.proof.state import At
from tests.support import audited_log
from tests.support.compacting import logs_of, now, told


@pytest.mark.parametrize(("shard_count", "touched"), [(4, 5000), (1, None)])
def test_what_looks_like_a_stamp_is_one_only_in_a_map(monkeypatch, shard_count, touched):
    """A state of the app's own, which has one shard, may have values of any bytes."""
    story = told(stages=["claim", "genesis"])
    story.partitions[0].state = {b"k1-2": b"\xc1" + bytes(7) + b"\x05\x01", b"k1-4": b"\x02"}
    monkeypatch.setattr(audited_log, "SHARD_COUNT", shard_count)
    story.tell({}, ["snapshot1", "batch5"])
    assert touched_of(story) == {b"k1-2": touched, b"k1-4": None}


def touched_of(story):
    found: dict[bytes, int | None] = {}
    for block in VIEWS["state"].blocks(now(story), logs_of(story), At()):
        touched = block["touched_at"]
        told = touched.to_pylist() if isinstance(touched, pa.Array) else touched
        found |= dict(zip(block["key"], told, strict=True))
    return found

"""Tests of which proposals the chain takes: what no forgery in tests/attacks, B18, comes to."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay.service.core.adoption import (
    CLOCKS_APART_MS_MAX,
    Reason,
    Standing,
    applied_since,
    pointer_to,
    refuse_entries,
    refuse_increment,
    refuse_manifest,
)
from snapreplay.service.core.chain import Chain
from snapreplay.snapshots.format.records import ChunkRef, Manifest
from snapreplay.state.digest import Digest
from tests.support import entries
from tests.support.entries import ORIGIN, increment, pointer

LAST = increment(9, pointers=[pointer(3)], last_decision_offset=12)
GOOD = entries.manifest("new", [ChunkRef(40, 0, 10, 1), ChunkRef(44, 1, 10, 1)], batch=7, increment_offset=23)
GOOD = msgspec.structs.replace(GOOD, proposed_by="compact@host/1")
CHAIN = Chain(ORIGIN, 0, LAST, 29, pointers_max=3)
NOW_MS = increment(7).written_at_ms


def reason(manifest: Manifest = GOOD, *, under_way: bool = False, start: int = 30, **chain: Any) -> Reason | None:
    """Say why it is refused, None: it is not; the manifest lies at 45, the last increment at 29."""
    standing = Standing(replace(CHAIN, **chain), "increments", "snapshots", start, 1, under_way=under_way)
    found = refuse_manifest(manifest, 45, standing)
    return found.reason if found is not None else None


def test_a_proposal_between_the_newest_pointer_and_the_last_increment_is_taken():
    """Up to the last increment itself; its pointer is an ordinary one."""
    assert reason() is None
    assert reason(msgspec.structs.replace(GOOD, batch=9, increment_offset=29)) is None
    made = pointer_to(GOOD, 45)
    assert (made.manifest_offset, made.first_chunk_offset, made.batch) == (45, 40, 7)
    assert (made.increment_offset, made.digest) == (23, GOOD.digest)
    assert pointer_to(msgspec.structs.replace(GOOD, chunks=[]), 45).first_chunk_offset == 45


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"batch": 3}, Reason.SUPERSEDED),
        ({"increment_offset": 12}, Reason.BEFORE_DECISION),
        ({"batch": 10}, Reason.AHEAD_OF_LOG),
        ({"increment_offset": 30}, Reason.AHEAD_OF_LOG),
    ],
)
def test_every_bound_is_exact(changed, why):
    """One batch or offset further, and it is refused."""
    assert reason(msgspec.structs.replace(GOOD, **changed)) is why


def test_the_last_increment_may_be_the_decision():
    """It names the decision before it; what is not behind it itself belongs to the chain before."""
    decided = msgspec.structs.replace(LAST, decision={"finding": "x"}, previous_offset=LAST.owner_epoch)
    assert reason(last=decided) is Reason.BEFORE_DECISION


def test_what_waits_for_its_pointer_counts_as_the_newest():
    """A later one must wait, an older one is superseded; pointers into a replaced topic do not count."""
    assert reason(new_pointer=pointer(8)) is Reason.SUPERSEDED
    assert reason(new_pointer=pointer(5)) is Reason.SNAPSHOT_UNDER_WAY
    assert reason(under_way=True) is Reason.SNAPSHOT_UNDER_WAY
    assert reason(last=msgspec.structs.replace(LAST, pointers=[pointer(8)])) is Reason.SUPERSEDED
    gone = msgspec.structs.replace(LAST, pointers=[pointer(8)])
    assert reason(last=gone, pointers_gone=True) is None


def test_the_increment_and_the_entries_must_be_the_recorded_ones():
    """The sentence names both values."""
    recorded = increment(7)
    assert refuse_increment(GOOD, recorded, NOW_MS) is None
    other = refuse_increment(GOOD, msgspec.structs.replace(recorded, stream_time_ms=5), NOW_MS)
    assert other is not None
    assert "stream_time_ms is -1, but the increment at offset 23 has 5" in other.detail
    assert refuse_entries(GOOD, {}) is None
    lost = refuse_entries(GOOD, {"default": Digest(1, 2, 3)})
    assert lost is not None
    assert str(Digest(1, 2, 3)) in lost.detail


def test_entries_that_cancel_out_must_be_in_their_stores():
    """The sum over all stores may be right, and those of the stores may not."""
    found = {"default": Digest(1, 2, 3)}
    manifest = msgspec.structs.replace(GOOD, digest=found["default"], store_digests={"other": Digest(1, 5, 7)})
    lost = refuse_entries(manifest, found)
    assert lost is not None
    assert "store other has 0:0000000000000000:0000000000000000" in lost.detail, lost.detail


@pytest.mark.parametrize(
    ("created_at_ms", "taken"),
    [
        (NOW_MS, True),
        (NOW_MS + CLOCKS_APART_MS_MAX, True),
        (NOW_MS + CLOCKS_APART_MS_MAX + 1, False),
        (NOW_MS - CLOCKS_APART_MS_MAX - 1, False),
    ],
)
def test_a_snapshot_is_made_after_its_batch_and_before_now(created_at_ms, taken):
    """Clocks may differ by a day."""
    manifest = msgspec.structs.replace(GOOD, created_at_ms=created_at_ms)
    refused = refuse_increment(manifest, increment(7), NOW_MS)
    assert (refused is None) == taken


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("batch", 8),
        ("digest", Digest(1, 2, 3)),
        ("positions", {"payments": 1, "refunds": 7}),
        ("stream_time_ms", 5),
        ("owner_epoch", 1),
        ("genesis", msgspec.structs.replace(entries.GENESIS, cluster_id="other")),
        ("topic_ids", {"payments": "another id"}),
        ("origin", msgspec.structs.replace(ORIGIN, app_version="2")),
        ("store_digests", {"other": Digest(1, 2, 3)}),
    ],
)
def test_each_field_that_manifest_and_increment_share_is_compared(name, other):
    """Among them the ids of the inputs: the batch is of the topic that it was read from."""
    recorded = msgspec.structs.replace(increment(7), **{name: other})
    refused = refuse_increment(GOOD, recorded, NOW_MS)
    assert refused is not None
    assert (refused.reason, f"its {name} is" in refused.detail) == (Reason.INCREMENT_DIFFERS, True)


@pytest.mark.parametrize(
    ("changed", "count"),
    [({}, 0), ({"positions": {"payments": 2, "refunds": 7}}, 2), ({"fired_count": 3, "digest": Digest(1, 2, 3)}, 1)],
    ids=["nothing", "records", "timers"],
)
def test_what_was_applied_since_a_proposal_is_counted_also_where_no_position_moved(changed, count):
    """Else nothing would be due, and a request for a snapshot would be answered that nothing was applied."""
    assert applied_since(increment(9), increment(10, **changed)) == count

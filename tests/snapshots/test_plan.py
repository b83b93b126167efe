"""Tests of where a recovery starts, for every state of the logs; and of what may be trimmed: never what a kept snapshot
needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.errors import StopError
from snapreplay.snapshots.plan import (
    Floors,
    FromGenesis,
    FromSnapshot,
    LogStarts,
    NoUsableSnapshot,
    passed_over,
    plan_start,
    retention_floors,
)
from tests.support.entries import GENESIS, increment, pointer

P30, P20, P10 = pointer(30), pointer(20), pointer(10)
LAST = increment(40, pointers=[P30, P20, P10])
WHOLE = LogStarts(0, 0, {"payments": 0, "refunds": 7})


def starts(increments: int, snapshots: int) -> LogStarts:
    """Return the starts of trimmed logs; the input is still whole."""
    return LogStarts(increments, snapshots, WHOLE.inputs)


def test_an_unusable_snapshot_gives_way_to_the_next_older_one() -> None:
    """The newest first, then one by one, as each of them fails."""
    assert plan_start(LAST, 122, WHOLE, {}) == FromSnapshot(P30)
    assert plan_start(LAST, 122, WHOLE, {"s30": "damaged"}) == FromSnapshot(P20)
    assert plan_start(LAST, 122, WHOLE, {"s30": "damaged", "s20": "too"}) == FromSnapshot(P10)


def test_what_is_passed_over_has_its_reasons() -> None:
    """Damaged or trimmed, newest first; what comes after the start that is taken is not judged."""
    assert passed_over(LAST, WHOLE, {}) == {}
    assert passed_over(LAST, WHOLE, {"s30": "damaged"}) == {"s30": "damaged"}
    found = passed_over(LAST, starts(0, 201), {"s30": "damaged"})
    assert list(found) == ["s30", "s20", "s10"]
    assert "now starts at 201" in found["s20"]


def test_a_whole_increments_log_leads_back_to_genesis() -> None:
    """Without a usable snapshot, or before the first one."""
    unusable = dict.fromkeys(("s30", "s20", "s10"), "damaged")
    assert plan_start(LAST, 122, WHOLE, unusable) == FromGenesis(GENESIS, 0)
    assert plan_start(increment(2), 8, WHOLE, {}) == FromGenesis(GENESIS, 0)


@pytest.mark.parametrize(
    "since", [{"decision": {"finding": "x"}, "owner_epoch": 90, "previous_offset": 90}, {"last_decision_offset": 20}]
)
def test_a_chain_that_a_decision_began_anew_has_no_way_from_genesis(since) -> None:
    """The log may be whole: what was decided is in a snapshot and in no increment before it."""
    last = increment(40, pointers=[P30], **since)
    assert plan_start(last, 122, WHOLE, {}) == FromSnapshot(P30)
    with pytest.raises(NoUsableSnapshot, match=r"a decision .* has begun a new chain"):
        plan_start(last, 122, WHOLE, {"s30": "damaged"})


@pytest.mark.parametrize(
    ("trimmed", "chosen"),
    [
        (starts(0, 300), P30),  # its first chunk is at 300
        (starts(92, 0), P30),  # its increment is at 92
        (starts(93, 0), P30),  # the record after it is enough
        (starts(32, 100), P30),
    ],
)
def test_a_snapshot_is_usable_up_to_the_border(trimmed, chosen) -> None:
    """The logs may begin exactly where it begins to need them."""
    assert plan_start(LAST, 122, trimmed, {}) == FromSnapshot(chosen)


@pytest.mark.parametrize(
    ("trimmed", "named"),
    [
        (starts(94, 0), "needs the increments topic after offset 92, which now starts at 94"),
        (starts(1, 301), "needs the snapshots topic from offset 300, which now starts at 301"),
    ],
)
def test_a_trimmed_snapshot_is_not_usable(trimmed, named) -> None:
    """One offset further and it is gone, and the error says by which offsets."""
    with pytest.raises(NoUsableSnapshot) as caught:
        plan_start(increment(40, pointers=[P30]), 122, trimmed, {})
    assert named in caught.value.message


def test_when_nothing_is_left_every_reason_is_named() -> None:
    """The error is a STOP that lists all pointers with their reasons, and a way out."""
    with pytest.raises(NoUsableSnapshot) as caught:
        plan_start(LAST, 122, starts(60, 0), {"s30": "chunk 4 damaged", "s20": "digest differs"})
    error = caught.value
    assert isinstance(error, StopError)
    assert error.facts["reasons"] == {
        "s30": "chunk 4 damaged",
        "s20": "digest differs",
        "s10": "needs the increments topic after offset 32, which now starts at 60",
    }
    assert "batch 40 (increment at offset 122)" in error.message
    assert "snapshot s30: chunk 4 damaged; snapshot s20: digest differs" in error.message
    assert "starts at offset 60, not at 0" in error.message


def test_the_way_out_depends_on_the_input() -> None:
    """An input that reaches back to the genesis can be processed again; a trimmed one is named."""
    with pytest.raises(NoUsableSnapshot) as whole:
        plan_start(increment(40), 122, starts(60, 0), {})
    assert "new app id" in whole.value.hint
    assert "it points to none" in whole.value.message
    gone = LogStarts(60, 0, {"payments": 500, "refunds": 7})
    with pytest.raises(NoUsableSnapshot) as trimmed:
        plan_start(increment(40), 122, gone, {})
    assert "payments (needs 0, starts at 500)" in trimmed.value.hint
    assert "refunds" not in trimmed.value.hint
    assert "what is left of it under a new app id, with an empty state" in trimmed.value.hint


BATCHES = st.lists(st.integers(1, 1000), unique=True, min_size=1, max_size=6)


def test_without_a_pointer_nothing_is_trimmed() -> None:
    """Before the first snapshot every increment is needed."""
    assert retention_floors(increment(9), 30, 3) is None


def test_floors_are_the_lowest_offsets_of_the_kept_snapshots() -> None:
    """The oldest kept snapshot's increment, and the lowest chunk of all of them."""
    last = increment(40, pointers=[pointer(30), pointer(20), pointer(10)])
    assert retention_floors(last, 122, 3) == Floors(32, 100)
    assert retention_floors(last, 122, 2) == Floors(62, 200)
    assert retention_floors(last, 122, 1) == Floors(92, 300)


def test_an_interleaved_older_chunk_counts() -> None:
    """A newer snapshot may hold the lowest chunk, when two writers interleaved."""
    last = increment(40, pointers=[pointer(30, first_chunk_offset=7), pointer(20)])
    assert retention_floors(last, 122, 2) == Floors(62, 7)


def test_a_snapshot_without_chunks_keeps_its_manifest() -> None:
    """An empty state's snapshot is its manifest alone."""
    last = increment(9, pointers=[pointer(3, first_chunk_offset=35, manifest_offset=35)])
    assert retention_floors(last, 30, 3) == Floors(11, 35)


@given(BATCHES, st.integers(-3, 9), st.integers(0, 4000))
def test_floors_never_reach_what_is_kept(batches, kept, last_offset) -> None:
    """With any pointers, the newest snapshot and the last increment stay."""
    pointers = [pointer(batch) for batch in sorted(batches, reverse=True)]
    floors = retention_floors(increment(2000, pointers=pointers), last_offset, kept)
    assert floors is not None
    assert 0 <= floors.increments_offset <= max(0, last_offset - 1)
    for still in pointers[: max(1, kept)]:
        assert floors.increments_offset <= still.increment_offset
        assert floors.snapshots_offset <= min(still.first_chunk_offset, still.manifest_offset)

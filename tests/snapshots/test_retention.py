"""Tests of what may be trimmed: never what a kept snapshot needs."""

from hypothesis import given
from hypothesis import strategies as st

from snapreplay.snapshots.plan import Floors, retention_floors
from tests.support.entries import increment, pointer

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
    """Whatever the pointers say, the newest snapshot and the last increment stay."""
    pointers = [pointer(batch) for batch in sorted(batches, reverse=True)]
    floors = retention_floors(increment(2000, pointers=pointers), last_offset, kept)
    assert floors is not None
    assert 0 <= floors.increments_offset <= max(0, last_offset - 1)
    for still in pointers[: max(1, kept)]:
        assert floors.increments_offset <= still.increment_offset
        assert floors.snapshots_offset <= min(still.first_chunk_offset, still.manifest_offset)

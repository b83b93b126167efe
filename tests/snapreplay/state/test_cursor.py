"""A snapshot is read in bounded steps, with exact sums."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.state import cursor as cursor_module
from snapreplay.state.contract import ShardSlice
from snapreplay.state.cursor import ShardCursor, split
from snapreplay.state.digest import MASK, Digest, digest_of
from snapreplay.state.steps import all_of

SHARDS = st.lists(st.dictionaries(st.binary(max_size=6), st.binary(max_size=20), max_size=8), max_size=6)


def raw_bytes(part: ShardSlice) -> int:
    """Key and value bytes."""
    return sum(len(key) + len(value) for key, value in part.entries.items())


@given(SHARDS, st.integers(1, 80), st.integers(1, 10))
def test_slices_are_the_image_in_bounded_steps(
    shards: list[dict[bytes, bytes]], raw_bytes_max: int, entries_max: int
) -> None:
    """Nothing twice, nothing missing, never empty, and over a limit only by a single entry."""
    found: list[dict[bytes, bytes]] = [{} for _ in shards]
    digest = digest_of([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cursor_module, "ENTRIES_MAX", entries_max)
        patch.setattr(cursor_module, "SLICE_ENTRIES_MAX", max(1, entries_max // 2))
        cursor = ShardCursor([dict(shard) for shard in shards], digest)
        sums = Digest(0, 0, 0)
        while slices := all_of(cursor.slicing(raw_bytes_max)):
            for part in slices:
                assert part.entries
                assert not part.entries.keys() & found[part.index].keys()
                found[part.index] |= part.entries
                sums = Digest(
                    sums.count + len(part.entries), sums.a + part.digest_a & MASK, sums.b + part.digest_b & MASK
                )
            entries = sum(len(part.entries) for part in slices)
            assert entries <= entries_max
            assert entries == 1 or sum(map(raw_bytes, slices)) <= raw_bytes_max
        assert all_of(cursor.slicing(raw_bytes_max)) == []
    assert found == shards
    every = [digest_of(shard.items()) for shard in shards]
    assert sums.count == sum(d.count for d in every)
    assert sums.a == sum(d.a for d in every) & MASK
    assert sums.b == sum(d.b for d in every) & MASK


@given(st.dictionaries(st.binary(max_size=6), st.binary(max_size=6), min_size=2, max_size=9))
def test_halves_have_exact_sums(entries: dict[bytes, bytes]) -> None:
    """Both are true slices, the second one by subtraction."""
    whole = digest_of(entries.items())
    halves = split(ShardSlice(3, whole.a, whole.b, entries))
    assert halves[0].entries | halves[1].entries == entries
    for half in halves:
        sums = digest_of(half.entries.items())
        assert (half.index, half.digest_a, half.digest_b) == (3, sums.a, sums.b)
        assert sums.count >= len(entries) // 2

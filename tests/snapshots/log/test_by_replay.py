"""The input of a replay, however it arrives, by a program that waits and by one that does not."""

from collections.abc import AsyncGenerator, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app.ranges import InputRange
from snapreplay.app.record import RawRecord
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.snapshots.log.by_replay import Input, InputDiffers
from snapreplay.snapshots.log.reading import Reading, Slice, Source, Waiting
from tests.support.in_memory import virtual

OFFSETS = st.lists(st.integers(0, 60), unique=True).map(sorted)
CUTS = st.lists(st.integers(0, 60), max_size=8).map(sorted)
SOURCE = Source("payments", 0, 61)


def slices(offsets: Sequence[int], cuts: Sequence[int]) -> list[list[RawRecord]]:
    """The records in slices that end at the cuts; none is empty."""
    records = [RawRecord("payments", 0, offset, 0, None, b"") for offset in offsets]
    parts = zip([0, *cuts], [*cuts, 61], strict=True)
    cut = [[each for each in records if a <= each.offset < b] for a, b in parts]
    return [each for each in cut if each]


def ranges(offsets: Sequence[int], ends: Sequence[int]) -> list[InputRange]:
    bounds = zip([0, *ends], [*ends, 61], strict=True)
    return [InputRange("payments", a, b, sum(a <= o < b for o in offsets)) for a, b in bounds]


def taken(parts: Sequence[InputRange]) -> Reading[list[list[int]]]:
    found, one = [], Input(SOURCE)
    for part in parts:
        records = yield from one.taking(part)
        found.append([each.offset for each in records])
        yield None
    return found


@given(OFFSETS, CUTS, CUTS)
def test_a_range_has_its_records_however_they_are_delivered(
    offsets: list[int], cuts: list[int], ends: list[int]
) -> None:
    """With gaps, empty ranges, and slices that end anywhere."""
    waiting = Waiting(lambda _: slices(offsets, cuts))
    parts = ranges(offsets, ends)
    expected = [[o for o in offsets if p.start_offset <= o < p.end_offset] for p in parts]
    assert waiting.all_of(taken(parts)) == expected


def test_nothing_is_asked_for_beyond_the_last_record_of_a_range() -> None:
    """Behind it may be what is not there yet. A later reading continues where this one ended."""
    asked: list[int] = []

    def read(source: Source) -> Iterator[Slice]:
        assert source == SOURCE
        for each in slices(range(6), [2, 4]):
            asked.append(each[0].offset)
            yield each

    waiting, one = Waiting(read), Input(SOURCE)
    waiting.all_of(one.taking(InputRange("payments", 0, 2, 2)))
    assert asked == [0]
    waiting.all_of(one.taking(InputRange("payments", 2, 5, 3)))
    assert asked == [0, 2, 4]


@pytest.mark.parametrize(("count", "told"), [(3, "holds 2 records"), (1, "holds 2 records")])
def test_more_or_fewer_records_than_then_are_refused(count: int, told: str) -> None:
    """Both counts are named."""
    waiting = Waiting(lambda _: slices(range(2), []))
    with pytest.raises(InputDiffers, match=f"{told}.* held {count} when"):
        waiting.all_of(taken([InputRange("payments", 0, 61, count)]))


@virtual
async def test_who_waits_and_who_does_not_see_the_same() -> None:
    """Records, results of functions and the end; what was opened is closed."""
    closed: list[Source] = []

    async def read(source: Source) -> AsyncGenerator[Slice, None]:
        try:
            for each in slices(range(10), [3, 7]):
                yield each
        finally:
            closed.append(source)

    def work() -> Reading[object]:
        computed = yield lambda: 7
        return computed, (yield from taken(ranges(range(10), [5])))

    found = await run_cooperatively(work(), read)
    assert found == Waiting(lambda _: slices(range(10), [3, 7])).all_of(work())
    assert closed == [SOURCE]

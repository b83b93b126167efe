"""Tests of how large the next batch may be, and of when a state that keeps no digest is hashed."""

import asyncio

import pytest

from snapreplay.app.ranges import InputRange
from snapreplay.service.core.batch_failures import BatchBisection
from snapreplay.service.live.pace import ALONE_BATCHES, PART_OF_TIME, SLOW_SECONDS, Pace, StateDigests
from snapreplay.state.digest import digest_of
from snapreplay.state.map import MapState
from snapreplay.state.stores import store_of
from tests.support import apps
from tests.support.entries import increment

FAILED = increment(3, ranges=[InputRange("in", 0, 16, 16)], positions={"in": 16})


def test_after_a_failure_batches_are_small_up_to_where_it_was_and_grow_behind() -> None:
    """Doubling, to what is set; meanwhile none is under way beside a handler."""
    told: list[float] = []
    pace, sizes, alone = Pace(50, told.append), [], 0
    pace.careful(BatchBisection().refused(FAILED), {"in": 0}, 3)
    for position in (4, 8, 12, 16, *range(17, 40)):
        sizes.append(pace.records_max)
        alone += pace.is_alone
        pace.committed({"in": position}, 4)
    assert sizes[:9] == [4, 4, 4, 4, 8, 16, 32, 50, 50]
    assert alone == ALONE_BATCHES


@pytest.mark.parametrize(("seconds", "alone"), [(SLOW_SECONDS, 0), (SLOW_SECONDS + 0.1, 2)])
def test_a_slow_handler_has_no_transaction_beside_it(seconds: float, alone: int) -> None:
    """The one under way could outlast its deadline; a quick batch ends that."""
    told: list[float] = []
    pace = Pace(50, told.append)
    pace.applied(seconds)
    assert told == [pace.apply_seconds] == [seconds]
    found = 0
    while pace.is_alone:
        found += 1
        pace.committed({"in": 1}, 1)
    assert (found, pace.records_max) == (alone, 50)


async def taken(digests: StateDigests, batches: int) -> list[int]:
    """Return the batches, of so many, after which one was taken."""
    return [n for n in range(1, batches + 1) if await digests.after_batch() is not None]


async def test_after_so_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted anew from each; it is that of all entries."""
    store = store_of(apps.Tape())
    store.view.ids += ["a", "b"]
    digests = StateDigests(store, 3)
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "time", lambda: 5.0)
        assert await taken(digests, 7) == [3, 6]
    assert await digests.taken() == digest_of(store.view.snapshot())


async def test_never_more_than_its_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that takes a second to hash is hashed when fifty have passed."""
    now = [0.0]
    store = store_of(apps.Tape())

    class Slow(apps.Tape):
        def snapshot(self) -> list[tuple[bytes, bytes]]:
            now[0] += 1.0
            return []

    store.view = Slow()
    digests = StateDigests(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
        assert await taken(digests, 2) == [1]
        now[0] += 1 / PART_OF_TIME - 1
        assert await taken(digests, 1) == []
        now[0] += 1.1
        assert await taken(digests, 1) == [1]


async def test_only_when_asked() -> None:
    """0 batches: at a graceful end, and at no other time."""
    digests = StateDigests(store_of(apps.Tape()), 0)
    assert await taken(digests, 5) == []
    assert await digests.taken() is not None


async def test_a_map_has_one_of_its_own() -> None:
    """Nothing is hashed twice."""
    digests = StateDigests(store_of(MapState(str, int)), 1)
    assert await taken(digests, 3) == []
    assert await digests.taken() is None

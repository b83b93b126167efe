"""Tests of when a state that keeps no digest is hashed."""

import asyncio

import pytest

from snapreplay.service.live.state_digests import PART_OF_TIME, StateDigests
from snapreplay.state.digest import digest_of
from snapreplay.state.map import MapState
from snapreplay.state.store import store_of
from tests.support import apps


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

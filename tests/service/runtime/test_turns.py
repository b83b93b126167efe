"""A few at a time; who takes long makes room, once."""

import asyncio
from contextlib import AsyncExitStack

from snapreplay.service.runtime import tasks
from snapreplay.service.runtime.tasks import AT_ONCE, StartTurns


async def waiting(starts: StartTurns) -> "asyncio.Task[None]":
    """One more that wants a turn, and has asked for it."""

    async def wants() -> None:
        async with starts.one():
            pass

    task = asyncio.create_task(wants())
    await asyncio.sleep(0)
    return task


async def test_one_more_waits_until_somebody_has_ended():
    """So many at once, and no more."""
    starts = StartTurns()
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE - 1):
            await stack.enter_async_context(starts.one())
        async with starts.one():
            late = await waiting(starts)
            assert not late.done()
        await late


async def test_who_takes_long_makes_room_and_ends_without_making_more(monkeypatch):
    """Its own end frees nothing a second time."""
    monkeypatch.setattr(tasks, "LONGEST_SECONDS", 0.01)
    starts = StartTurns()
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            await stack.enter_async_context(starts.one())
        await (await waiting(starts))
    monkeypatch.setattr(tasks, "LONGEST_SECONDS", 60.0)
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            await stack.enter_async_context(starts.one())
        late = await waiting(starts)
        assert not late.done()
    await late

"""The virtual event loop: time jumps, processes stand still, nothing depends on the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.simulation.loop import Host, Stuck, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_an_hour_takes_no_time(loop: VirtualLoop) -> None:
    """Timers fire in their order, at their time, at once."""
    fired: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        fired.append((name, loop.time()))

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait("late", 3600.0))
            group.create_task(wait("soon", 1.0))

    began = time.monotonic()
    loop.run_until_complete(both())
    assert fired == [("soon", 1.0), ("late", 3600.0)]
    assert time.monotonic() - began < 60


def test_a_stalled_process_stands_still_and_loses_nothing(loop: VirtualLoop) -> None:
    """Its timers and wake-ups are held back; the others go on."""
    host, seen = Host(), []

    async def tick(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(1.0)
            seen.append((name, loop.time()))

    async def story() -> None:
        own = host.context.copy().run(loop.create_task, tick("stalled"))
        other = loop.create_task(tick("other"))
        await asyncio.sleep(1.5)
        host.stalled = True
        await asyncio.sleep(8.5)
        loop.resume(host)
        await asyncio.wait([own, other])

    loop.run_until_complete(story())
    assert [at for name, at in seen if name == "other"] == [1.0, 2.0, 3.0]
    assert [at for name, at in seen if name == "stalled"] == [1.0, 10.0, 11.0]
    assert len(host.tasks) == 1


def test_threads_are_calls(loop: VirtualLoop) -> None:
    """What is handed to a thread is done at once, errors included."""

    async def story() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 7)

    assert loop.run_until_complete(story()) == 7


def test_a_deadlock_is_told(loop: VirtualLoop) -> None:
    """Where everybody waits for somebody else no time passes any more."""
    with pytest.raises(Stuck):
        loop.run_until_complete(loop.create_future())

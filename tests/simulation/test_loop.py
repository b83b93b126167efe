"""The virtual event loop: time jumps, processes stand still."""

from __future__ import annotations

import asyncio
import time

from tests.simulation.loop import Host, VirtualLoop


def test_a_stalled_process_stands_still_and_loses_nothing() -> None:
    """Its timers and wake-ups are held back; the others go on. An hour takes no time."""
    loop, host, seen = VirtualLoop(), Host(), []

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
        await asyncio.sleep(3600)

    began = time.monotonic()
    loop.run_until_complete(story())
    loop.close()
    assert time.monotonic() - began < 60
    assert [at for name, at in seen if name == "other"] == [1.0, 2.0, 3.0]
    assert [at for name, at in seen if name == "stalled"] == [1.0, 10.0, 11.0]
    assert len(host.tasks) == 1

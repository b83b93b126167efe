"""Snapshots that were asked for and cancelled."""

import asyncio
from typing import Any

from tests.service.live.test_snapshot_scheduler import answer, asked, fed, gate
from tests.support.in_memory import virtual
from tests.support.owner import ends
from tests.support.stage import until

__all__ = ["gate"]


@virtual
async def test_a_snapshot_that_waits_is_taken_back(bench, gate):
    """Nothing is written for it. One that has begun is written to its end; whoever asks again gets the next one."""
    await bench.prepare()
    async with bench.live() as one:
        await fed(bench, one, 10)
        first = asked(one)
        await until(lambda: gate.asked, "the first one")
        await fed(bench, one, 10)
        told: list[Any] = []
        done = ends(told)
        one.runner.request_snapshot("trigger", done)
        one.runner.withdraw(done)
        gate.open.set()
        assert (await answer(first))[0] == "succeeded"
        await asyncio.sleep(60)  # virtual
        assert (gate.asked, told) == (1, [])
        again = asked(one)
        assert (await answer(again))[0] == "succeeded"
        assert gate.asked == 2


@virtual
async def test_a_snapshot_that_was_cancelled_in_the_last_moment_is_of_nobody(bench, gate):
    """It is being marked when the operation is cancelled: it is written, and nobody is told."""
    await bench.prepare()
    async with bench.live() as one:
        await fed(bench, one, 10)
        gate.open.set()
        told: list[Any] = []

        def cancelled(*news):
            told.append(news)
            return True

        one.runner.request_snapshot("trigger", cancelled)
        await until(lambda: one.status.snapshot and one.status.snapshot.state == "pointed", "its pointer")
        assert told == [("running", None, "")]

"""What an operator does first: `snapreplay init`, until it says that all partitions have begun."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from snapreplay.errors import StopError
from snapreplay.service.decisions.init import OwnedBefore, init_app
from tests.simulation.oracle import Violation
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

AGAIN_SECONDS = 0.3


async def begin_late(world: World) -> None:
    """While the processes wait for it."""
    await asyncio.sleep(world.scenario.chaos_seconds * world.rng.random() / 2)
    await begin(world)


async def begin(world: World) -> None:
    """
    Raises:
        Violation: `init` says that something was lost.
    """
    while True:
        process = Process(world, "init", world.deployed(), world.scenario.settings("init"), 5000)
        work = process.spawn(init_app(process.app, process.settings, process.cluster))
        await asyncio.wait([work])
        error = None if work.cancelled() else work.exception()
        # An `init` that was fenced has left its transaction open: the operator is told to wait.
        if isinstance(error, StopError) and not isinstance(error, OwnedBefore):
            raise Violation(f"init: {error}")
        if error is None and not work.cancelled():
            return
        world.network.met("init again")
        await asyncio.sleep(AGAIN_SECONDS)

"""The first thing an operator does: `snapreplay init`, until it says that all partitions have begun."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from snapreplay.errors import StopError
from snapreplay.service.decisions.init import OwnedBefore, init_app
from tests.simulation.history import Violation
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

AGAIN_SECONDS = 0.3
REFUSED_SECONDS = 10.0  # virtual: every transaction that an `init` left open has timed out by then


async def begin_late(world: World) -> None:
    """Begin while the processes wait for it."""
    await asyncio.sleep(world.scenario.chaos_seconds * world.rng.random() / 2)
    await begin(world)


async def begin(world: World) -> None:
    """
    Raises:
        Violation: `init` says that something was lost.
    """
    refused_at: float | None = None
    while True:
        lost = refused_at is not None and world.loop.time() > refused_at + REFUSED_SECONDS
        for each in list(world.processes) if lost else ():
            each.crash()  # "stop all processes of the app"
        process = Process(world, "init", world.deployed(), world.scenario.settings("init"), 5000)
        work = process.spawn(
            init_app(process.app, process.settings, process.cluster, state_is_lost=lost)
        )
        await asyncio.wait([work])
        error = None if work.cancelled() else work.exception()
        world.inits_cut += work.cancelled() or not isinstance(error, OwnedBefore | None)
        if isinstance(error, OwnedBefore) and refused_at is None:
            refused_at = world.loop.time()
        # Two that were cut short may look like an owner whose log was lost: then it takes `--state-is-lost`.
        if isinstance(error, StopError) and not (
            isinstance(error, OwnedBefore) and world.inits_cut > 1
        ):
            raise Violation(f"init: {error}")
        if error is None and not work.cancelled():
            return
        world.network.met("init again")
        await asyncio.sleep(AGAIN_SECONDS)

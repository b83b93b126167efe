"""The beginning of a history, `snapreplay init` until it says that all partitions have begun; and its end: when all is
healed, everybody starts again, or somebody deploys code that computes something else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from snapreplay.errors import StopError
from snapreplay.service.core.phase import Phase
from snapreplay.service.decisions.init import OwnedBefore, init_app
from tests.simulation import program
from tests.simulation.history import Violation
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

AGAIN_SECONDS = 0.3
REFUSED_SECONDS = 10.0  # virtual: every transaction that an `init` left open has timed out by then
STARTED_SECONDS = 150.0
"""Virtual: an input that ends too early is waited for for half a minute, by two partitions at a time."""
DECIDED = (Phase.LIVE, Phase.FAILED)


async def begin_late(world: World) -> None:
    await asyncio.sleep(world.scenario.chaos_seconds * world.rng.random() / 2)
    await begin(world)


async def begin(world: World) -> None:
    """Raises Violation: `init` says that something was lost."""
    refused_at: float | None = None
    while True:
        lost = refused_at is not None and world.loop.time() > refused_at + REFUSED_SECONDS
        for each in list(world.processes) if lost else ():
            each.crash()  # "stop all processes of the app"
        process = Process(world, "init", world.deployed(), world.scenario.settings("init"), 5000)
        work = process.spawn(init_app(process.app, process.settings, process.cluster, state_is_lost=lost))
        await asyncio.wait([work])
        error = None if work.cancelled() else work.exception()
        world.inits_cut += work.cancelled() or not isinstance(error, OwnedBefore | None)
        if isinstance(error, OwnedBefore) and refused_at is None:
            refused_at = world.loop.time()
        # Two that were cut short may look like an owner whose log was lost: then it takes `--state-is-lost`.
        if isinstance(error, StopError) and not (isinstance(error, OwnedBefore) and world.inits_cut > 1):
            raise Violation(f"init: {error}")
        if error is None and not work.cancelled():
            return
        world.network.met("init again")
        await asyncio.sleep(AGAIN_SECONDS)


async def play(world: World) -> None:
    """Raises Violation: a partition is LIVE with another state than before, or not at all."""
    kind = world.scenario.epilogue
    if kind == "none":
        return
    await _restart(world, program.CHANGED if kind == "changed code" else world.version)
    world.look()
    if kind == "changed code":  # refused where it would have to replay; else the state is what it was
        for status in world.processes[-1].board.all():
            if status.phase is Phase.FAILED and status.error is not None:
                world.network.met("changed code refused")
        return
    for number in range(world.scenario.partitions):
        if world.store_of(number) is None and number not in world.refused:
            raise Violation(f"partition {number}: no owner is LIVE after a restart")


async def _restart(world: World, version: int) -> None:
    """All processes die at once; one starts, and gets all partitions."""
    world.network.met(f"epilogue {world.scenario.epilogue}")
    world.version = version
    world.epilogue = True
    for process in list(world.processes):
        world.processes.remove(process)
        process.crash()
        world.group.forget(process)
    world.group.reset()
    process = world.start("z")
    deadline = world.loop.time() + STARTED_SECONDS
    while world.loop.time() < deadline:
        await asyncio.sleep(0.2)
        statuses = process.board.all()
        decided = all(
            status.phase in DECIDED or world.settling.has_said(status.partition, status) for status in statuses
        )
        if decided and len(statuses) == world.scenario.partitions and world.settling.quiet:
            return
    if world.losses.is_waited_for():
        world.refused |= set(range(world.scenario.partitions))
        return
    world.network.misused(f"not started again after {STARTED_SECONDS} s: {process.board.all()}")

"""The time after a healed history: everybody starts again, or somebody deploys code that computes something else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from snapreplay.service.core.phase import Phase
from tests.simulation import program
from tests.simulation.history import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

STARTED_SECONDS = 150.0
"""Virtual: an input that ends too early is waited for for half a minute, by two partitions at a time."""
DECIDED = (Phase.LIVE, Phase.FAILED)


async def play(world: World) -> None:
    """
    Raises:
        Violation: a partition is LIVE with another state than before, or not at all.
    """
    kind = world.scenario.epilogue
    if kind == "none":
        return
    await _restart(world, program.CHANGED if kind == "changed code" else world.version)
    world.look()
    if (
        kind == "changed code"
    ):  # refused where it would have to replay; else the state is what it was
        for status in world.processes[-1].board.all():
            if status.phase is Phase.FAILED and status.error is not None:
                world.network.met("changed code refused")
        return
    for number in range(world.scenario.partitions):
        if world.store_of(number) is None and number not in world.refused:
            raise Violation(f"partition {number}: nobody is LIVE after a restart")


async def _restart(world: World, version: int) -> None:
    """All processes die at once; one starts, and gets all partitions."""
    world.network.met(f"epilogue {world.scenario.epilogue}")
    world.version = version
    world.epilogue = True
    for process in list(world.processes):
        world.processes.remove(process)
        process.crash()
        world.group.members.pop(process.instance_id, None)
    world.group.assignment.clear()
    process = world.start("z")
    deadline = world.loop.time() + STARTED_SECONDS
    while world.loop.time() < deadline:
        await asyncio.sleep(0.2)
        statuses = process.board.all()
        decided = all(
            status.phase in DECIDED or world.has_said(status.partition, status)
            for status in statuses
        )
        if decided and len(statuses) == world.scenario.partitions and world.quiet:
            return
    if world.losses.is_waited_for():
        world.refused |= set(range(world.scenario.partitions))
        return
    world.network.misused(f"not started again after {STARTED_SECONDS} s: {process.board.all()}")

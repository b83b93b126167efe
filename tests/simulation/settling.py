"""The end of a history's chaos: everybody is LIVE with all that there is, or says why not, as it may."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.core.phase import Phase
from snapreplay.service.ports import TopicPartition
from tests.simulation import events
from tests.simulation.history import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

# Virtual: an owner that lost its partition several times in a row stands back for up to a minute.
HEALED_SECONDS = 150.0
# Virtual: who waits for its genesis for so long says so.
WAITED_SECONDS = 30.0


class Settling:
    """Waits for a world whose faults have ended."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def until_settled(self) -> None:
        world = self._world
        began = world.loop.time()
        # The app may send to itself meanwhile: where the inputs end is looked at each time.
        while not (all(self._is_settled(n, world.targets(n)) for n in range(world.scenario.partitions)) and self.quiet):
            if world.network.violations:
                raise Violation("; ".join(world.network.violations))
            if world.loop.time() > began + WAITED_SECONDS and world.losses.is_waited_for():
                world.refused |= set(range(world.scenario.partitions))
                return
            if world.loop.time() > began + HEALED_SECONDS:
                raise Violation(f"not healed after {HEALED_SECONDS} s: {self._phases()}")
            await asyncio.sleep(0.05)
        world.network.trace("world", f"healed after {world.loop.time() - began:.1f} s")

    async def prove(self) -> None:
        """One more record for everybody, so that a log that is not what it was is met. Who says so is refused; who has
        only said so meanwhile, and is LIVE, is not."""
        world = self._world
        world.losses.settle()
        for topic in world.inputs:
            for number in range(world.scenario.partitions):
                world.feeder.add(TopicPartition(topic, number), 1)
        world.feeder.finish()
        await self.until_settled()
        world.refused = {number for number in world.refused if not self._is_live(number)}

    def _is_live(self, number: int) -> bool:
        world = self._world
        owner = world.group.owner(number)
        status = owner.board.get(number) if owner is not None else None
        return status is not None and status.phase is Phase.LIVE

    @property
    def quiet(self) -> bool:
        """No transaction is open, all markers are written: LSO = HW everywhere."""
        world = self._world
        return all(log.stable == log.end for log in world.broker.logs.values())

    def _is_settled(self, number: int, targets: dict[str, int]) -> bool:
        """LIVE exactly where it is assigned, all consumed and in today's log."""
        world = self._world
        owner = world.group.owner(number)
        if world.own_replaced and not events.is_written(world, number):
            return False
        for process in world.processes:
            status = process.board.get(number)
            if process is not owner:
                if status is not None and not self._is_held_apart(number, status):
                    return False
                continue
            if status is not None and self.has_said(number, status):
                continue
            if status is None or status.phase is not Phase.LIVE:
                return False
            store = world.store_of(number)
            if store is None or (store.calls is not None and store.calls.pending()):
                return False
            positions = {each.topic: each.position for each in status.inputs}
            if any(positions.get(topic, -1) < target for topic, target in targets.items()):
                return False
            if self._was_replaced_unnoticed(number, targets):
                return False
        return owner is not None and owner in world.processes

    def _was_replaced_unnoticed(self, number: int, targets: dict[str, int]) -> bool:
        """Say whether the position of an owner is one in an input that was replaced since: beyond what its log has."""
        last = events.last_increment(self._world, number)
        replaced = {each.topic for each in self._world.replaced}
        return last is not None and any(last.positions.get(topic, -1) < targets.get(topic, 0) for topic in replaced)

    def _is_held_apart(self, number: int, status: PartitionStatus) -> bool:
        """A process that was replaced, and whose successor's log is lost: it only holds its state, and says so."""
        world = self._world
        kind = status.error.kind if status.error else ""
        if kind == "Unreachable":
            return world.losses.blocks(number)
        held = kind in {"NotAssigned", "StateDisputed"}
        return held and "increments" in world.losses.parts[number]

    def has_said(self, number: int, status: PartitionStatus) -> bool:
        """That it cannot continue, and why, as it may."""
        world = self._world
        if status.phase is Phase.FENCING and status.error and world.losses.blocks(number):
            world.network.met("said of a loss: no owner can fence")
            world.refused.add(number)
            return True
        return status.phase is Phase.FAILED and number in world.refused

    def _phases(self) -> str:
        world = self._world
        found = [
            f"{process.name}: {status.partition} {status.phase.value} {status.error} {status.inputs}"
            for process in world.processes
            for status in process.board.all()
        ]
        loud = [f"{log.partition}: {log.view}" for log in world.broker.logs.values() if log.stable < log.end]
        targets = [world.targets(number) for number in range(world.scenario.partitions)]
        return f"{world.group.assignment}, {loud}, {targets}, " + "; ".join(found)

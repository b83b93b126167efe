"""The loss of a whole rack: `python -m tests.simulation.rack_loss 100 10000` for so many processes and partitions.

The real supervisors, assignor, copies and recoveries of all processes run on a Kafka in memory, in virtual time.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.core.assignment import Holding
from snapreplay.service.core.phase import Phase
from tests.simulation.fleet import Fleet
from tests.simulation.scenario import instance_id
from tests.simulation.test_regressions import QUIET, Script

FLEET = replace(QUIET, replicas=1, records=6, chaos_seconds=8.0, epilogue="none", dead_letter=True)
LOST = "rack 0"


@dataclass(frozen=True)
class Deployment:
    """So many processes, spread over so many racks, of which one is lost."""

    processes: int
    partitions: int
    racks: int = 3

    @property
    def owned(self) -> int:
        """The most partitions of one process."""
        return math.ceil(self.partitions / self.processes)

    @property
    def lost(self) -> int:
        """The processes of the largest rack."""
        return math.ceil(self.processes / self.racks)

    @property
    def owned_afterwards(self) -> int:
        """The most partitions of one process after the loss."""
        return math.ceil(self.partitions / (self.processes - self.lost))


def racks_of(planned: Deployment) -> dict[str, str]:
    return {instance_id(number): f"rack {number % planned.racks}" for number in range(planned.processes)}


class Loss:
    """The loss of the largest rack as soon as all partitions are copied, and what happens until all are LIVE again."""

    def __init__(self, planned: Deployment, told: dict[str, str]) -> None:
        """Take `told`: the racks as the processes tell them to the group."""
        self._planned = planned
        self.script = Script({"end": {}}, replace(FLEET, processes=planned.processes, partitions=planned.partitions))
        self.world = self.script.world
        assert isinstance(self.world.group, Fleet)
        self.world.group.racks = told
        self.lost: frozenset[int] = frozenset()
        self.copied: frozenset[int] = frozenset()
        """Those of the lost partitions that a process on another rack has a copy of."""
        self.restores: Counter[str] = Counter()
        """Of the lost partitions: how the first one who was LIVE with each came to its state."""
        self.seconds = 0.0
        self.evened = False
        self.most_under_way = 0
        self._under_way: dict[str, set[int]] = {}
        self._live: set[int] = set()
        self._when(self._is_ready, self._happen)

    def run(self) -> str | None:
        """The problem, if any."""
        return self.script.run()

    def _when(self, happened: Callable[[], bool], then: Callable[[], None]) -> None:
        """Do it as soon as that is so; to look at all processes takes long."""
        self.world.loop.call_later(0.5, lambda: then() if happened() else self._when(happened, then))

    def _held(self) -> list[Holding]:
        return [each.supervisor.holding for each in self.world.processes if each.supervisor is not None]

    def _is_ready(self) -> bool:
        held = self._held()
        planned = self._planned
        evenly = {len(each.owned) for each in held} == {planned.owned}
        return evenly and sum(len(each.warm) for each in held) == planned.partitions

    def _happen(self) -> None:
        world, racks = self.world, racks_of(self._planned)
        victims = [each for each in world.processes if racks[each.instance_id] == LOST]
        assert len(victims) == self._planned.lost
        self.lost = _union(each.supervisor.holding.owned for each in victims if each.supervisor is not None)
        world.processes[:] = [each for each in world.processes if each not in victims]
        self.copied = self.lost & _union(each.warm for each in self._held())
        for each in world.processes:
            each.board.subscribe(partial(self._look, each.name))
        for victim in victims:
            victim.crash()
            for each in world.processes:
                world.suspicions.suspect(each, victim)
        began = world.loop.time()
        self.script.when(lambda: self._live == self.lost, lambda: self._recovered(began))

    def _recovered(self, began: float) -> None:
        self.seconds = self.world.loop.time() - began
        self._when(self._is_even, self._even)

    def _is_even(self) -> bool:
        return max(len(each.owned) for each in self._held()) == self._planned.owned_afterwards

    def _even(self) -> None:
        self.evened = True

    def _look(self, name: str, status: PartitionStatus) -> None:
        under_way, number, restore = self._under_way.setdefault(name, set()), status.partition, status.restore
        under_way.discard(number)
        if status.phase in (Phase.LOADING, Phase.ADVANCING):
            under_way.add(number)
        self.most_under_way = max(self.most_under_way, len(under_way))
        if status.phase is Phase.LIVE and restore is not None and number in self.lost and number not in self._live:
            self._live.add(number)
            self.restores[restore.warm or "restored"] += 1


def _union(numbers: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*numbers)


def main() -> None:
    processes, partitions = map(int, sys.argv[1:])
    planned = Deployment(processes, partitions)
    loss, began = Loss(planned, racks_of(planned)), time.process_time()
    problem = loss.run()
    print(f"{processes} processes on {planned.racks} racks, {partitions:,} partitions: {problem or 'no problem'}")
    print(f"{planned.lost} processes with {len(loss.lost):,} partitions are lost; {len(loss.copied):,} are copied")
    print(f"all LIVE {loss.seconds:.2f} s later: {dict(loss.restores)}; {loss.most_under_way} at once in a process")
    print(f"as evenly as planned ({planned.owned_afterwards} in a process): {loss.evened}")
    print(f"{time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()

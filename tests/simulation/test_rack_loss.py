"""A whole rack is lost at once, of three with ten processes and a hundred partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest

from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.core.assignment import Holding
from snapreplay.service.core.capacity import Deployment, needs
from snapreplay.service.core.phase import Phase
from snapreplay.service.runtime.turns import AT_ONCE
from tests.simulation.fleet import Fleet
from tests.simulation.group import SESSION_SECONDS
from tests.simulation.test_regressions import QUIET, Script

PLANNED = Deployment(10, 100, replicas=1, racks=3, session_seconds=SESSION_SECONDS)
FLEET = replace(
    QUIET,
    processes=PLANNED.processes,
    partitions=PLANNED.partitions,
    replicas=1,
    records=6,
    chaos_seconds=8.0,
    epilogue="none",
    dead_letter=True,
)
RACKS = {name: f"rack {number % PLANNED.racks}" for number, name in enumerate("abcdefghij")}
LOST = frozenset(name for name, rack in RACKS.items() if rack == "rack 0")
SPLIT = {name: f"zone {number // 2 % 2}" for number, name in enumerate("adgjbcefhi")}
"""Each of two zones has two of the lost ones: what `client.rack` names is not what fails."""


class Loss:
    """The loss of the largest rack as soon as all partitions are copied, and what happens until all are LIVE again."""

    def __init__(self, told: dict[str, str]) -> None:
        """Take `told`: the racks as the processes tell them to the group."""
        self.script = Script({"end": {}}, FLEET)
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
        self.world.loop.call_later(0.5, self.script.when, self._is_ready, self._happen)

    def _held(self) -> list[Holding]:
        return [each.supervisor.holding for each in self.world.processes if each.supervisor is not None]

    def _is_ready(self) -> bool:
        held = self._held()
        return {len(each.owned) for each in held} == {PLANNED.owned} and sum(len(each.warm) for each in held) == 100

    def _happen(self) -> None:
        world = self.world
        victims = [each for each in world.processes if each.instance_id in LOST]
        assert len(victims) == PLANNED.lost
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
        self.script.when(self._is_even, self._even)

    def _is_even(self) -> bool:
        return max(len(each.owned) for each in self._held()) == PLANNED.owned_afterwards

    def _even(self) -> None:
        self.evened = True

    def _look(self, name: str, status: PartitionStatus) -> None:
        under_way, number, restore = self._under_way.setdefault(name, set()), status.partition, status.restore
        under_way.discard(number)
        if status.phase in (Phase.LOADING, Phase.ADVANCING):
            under_way.add(number)
        self.most_under_way = max(self.most_under_way, len(under_way))
        if status.phase is Phase.LIVE and restore is not None and number in self.lost - self._live:
            self._live.add(number)
            self.restores[restore.warm or "restored"] += 1


def _union(numbers: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*numbers)


@pytest.mark.slow
@pytest.mark.parametrize("told", [RACKS, SPLIT], ids=["racks", "other zones"])
def test_a_lost_rack_is_made_up_for_as_planned(told: dict[str, str]) -> None:
    """With the right racks every lost partition is taken over by its copy at once, and none is restored. With others,
    only what has its copy on the lost rack, too, waits for the session, and is restored or copied first."""
    loss = Loss(told)
    assert loss.script.run() is None
    assert len(loss.lost) == PLANNED.lost * PLANNED.owned
    assert (loss.copied == loss.lost) == (told is RACKS)
    assert loss.world.network.faults.counts["partition taken over"] == len(loss.copied)
    assert loss.restores.keys() <= {"copied", "restored"}
    assert (loss.restores["restored"] > 0) == (told is not RACKS)
    assert loss.restores["restored"] <= len(loss.lost - loss.copied)
    assert "by warm copies" in needs(PLANNED)[-1].amount
    assert (loss.seconds < SESSION_SECONDS) == (told is RACKS)
    assert loss.most_under_way <= AT_ONCE
    assert loss.evened

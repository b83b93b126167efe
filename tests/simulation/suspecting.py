"""The word of processes on each other's lives: suspicions that are right, wrong, late and doubled.

A process that dies is suspected by the others at once, a process that pauses once it is silent. Live processes are
suspected, too. No process takes over from the same other one again while its last false alarm counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from snapreplay.service.core.assignment import Share
from snapreplay.service.core.suspicion import FalseAlarms
from tests.simulation.network import NOWHERE
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

SUSPICIONS = (
    "suspect living",
    "suspect silent",
    "suspect twice",
    "suspect late",
    "suspect others",  # two suspect each other
    "suspect all",  # everybody everybody
    "kill two",
    "freeze two",
)
"""What may be seen of a process that lives, and what happens to two at once."""

REFUSED_SECONDS, SILENT_SECONDS = 0.15, 0.4
LATE_SECONDS = 4.0
STRAY_SHARE = 0.3
"""Of suspicions by who is cut off from the group, and does not know it yet."""


def draw_suspicions(rng: random.Random) -> list[str]:
    return [rng.choice(SUSPICIONS) for _ in range(rng.choice((0, 1, 1, 2, 3, 5)))]


class Suspicions:
    """The suspicions of a history, and what became of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_on = world.scenario.replicas > 0
        self._taken: dict[str, dict[int, str]] = {}
        """Process → partition that it has taken over → from which one."""
        self.takeovers: list[tuple[float, int]] = []
        """When, and of which partition."""
        self._alarms: dict[tuple[str, str], FalseAlarms] = {}
        self._shares: dict[str, Share] = {}

    # ---------------------------------------------------------- what is seen

    def died(self, process: Process) -> None:
        """Connections to it are refused; not everybody sees it, some see it late, or twice."""
        for observer in self._others(process):
            draw = self._world.rng.random()
            if draw < 0.1:
                continue
            late = LATE_SECONDS * self._world.rng.random() if draw < 0.25 else 0.0
            for _ in range(2 if draw > 0.9 else 1):
                self._later(REFUSED_SECONDS + 0.2 * self._world.rng.random() + late, observer, process)

    def stalled(self, process: Process, seconds: float) -> None:
        """Nothing is heard of it."""
        if seconds > SILENT_SECONDS:
            for observer in self._others(process):
                self._later(SILENT_SECONDS + 0.2 * self._world.rng.random(), observer, process, is_silent=True)

    def happen(self, how: str, seconds: float) -> bool:
        """Somebody who lives is suspected."""
        world, rng = self._world, self._world.rng
        if not self._is_on or len(world.processes) < 2:
            return False
        one, other = rng.sample(world.processes, 2)
        is_silent = how == "silent"
        self._later(seconds if how == "late" else 0.0, one, other, is_silent=is_silent)
        if how == "twice":
            self._later(seconds * rng.random(), one, other, is_silent=rng.random() < 0.5)
        elif how == "others":
            self._later(0.0, other, one)
        elif how == "all":
            for each in world.processes:
                for observer in self._others(each):
                    self._later(seconds * rng.random(), observer, each, is_silent=rng.random() < 0.3)
        return True

    def suspect(self, one: Process, other: Process) -> None:
        """Let one process suspect another one, now."""
        self._later(0.0, one, other)

    def two(self, what: str, seconds: float) -> bool:
        """Two processes die, or pause, at once."""
        world = self._world
        if not self._is_on or len(world.processes) < 2:
            return False
        for process in world.rng.sample(world.processes, 2):
            if what == "kill":
                process.crash()
            else:
                process.stall(seconds + 0.5)
        return True

    def _others(self, process: Process) -> Iterator[Process]:
        yield from (each for each in list(self._world.processes) if self._is_on and each is not process)

    def _later(self, seconds: float, observer: Process, process: Process, *, is_silent: bool = False) -> None:
        seen = partial(self._see, observer, process, is_silent=is_silent)
        self._world.loop.call_later(seconds, seen, context=NOWHERE)

    def _see(self, observer: Process, process: Process, *, is_silent: bool) -> None:
        world = self._world
        if world.ending or world.epilogue or observer.dead or observer.supervisor is None:
            return
        if not world.group.hears(observer) and world.rng.random() > STRAY_SHARE:
            return
        kind = ("silent" if is_silent else "refused", "dead" if process.dead else "living")
        world.network.met(f"suspected: {kind[0]}, {kind[1]}")
        observer.soon(self._told, observer, process.identity.process_id, is_silent)

    def _told(self, observer: Process, process_id: str, is_silent: bool) -> None:
        if observer.supervisor is not None and not observer.dead:
            silent_seconds = SILENT_SECONDS if is_silent else None
            observer.supervisor.take_over(process_id, "refused", silent_seconds=silent_seconds)
            self.look(observer)

    # ---------------------------------------------------------- what becomes of it

    def look(self, process: Process) -> None:
        """Look what a process has taken over since, and judge whether it may: call it before each assignment, and when
        its status changes."""
        supervisor = process.supervisor
        if not self._is_on or supervisor is None or process.dead:
            return
        taken = self._taken.setdefault(process.name, {})
        for number in sorted(supervisor.taken_over - taken.keys()):
            share = self._shares.get(process.name, Share())
            peer = next((each.process_id for each in share.peers if number in each.owned), "")
            taken[number] = peer
            self.takeovers.append((self._world.loop.time(), number))
            self._world.network.met("partition taken over")
            self._world.network.trace(process.name, f"takes partition {number} over")
            alarms = self._alarms.get((process.name, peer), FalseAlarms())
            if self._world.loop.time() < alarms.until:
                self._world.network.misused(f"{process.name} takes {number} over again, before {alarms.until}")
            if number not in share.first:
                self._world.network.misused(f"{process.name} takes {number} over, and is not the first to do so")

    def assigned(self, process: Process, share: Share) -> None:
        """Look at what an assignment has ended; call it when the process has learned from it."""
        self._shares[process.name] = share
        if process.supervisor is None:
            return
        taken, judged = self._taken.setdefault(process.name, {}), set()
        for number in sorted(taken.keys() - process.supervisor.taken_over):
            peer = taken.pop(number)
            is_known = number in share.claimed
            self._world.network.met("takeover confirmed" if number in share.owned else "takeover denied")
            if is_known and peer not in share.absent and any(each.process_id == peer for each in share.peers):
                judged.add(peer)
        for peer in judged:
            self._world.network.met("false alarm")
            key, now = (process.name, peer), self._world.loop.time()
            self._alarms[key] = self._alarms.get(key, FalseAlarms()).another(now)

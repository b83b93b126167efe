"""Operators who pause partitions and resume them, or forget to: what the logs must say of it."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from snapreplay.app import names
from snapreplay.service.clock import wall_ms
from snapreplay.snapshots.format.records import Increment, Paused
from tests.simulation import told
from tests.simulation.history import History, require
from tests.simulation.network import NOWHERE
from tests.simulation.program import APP_ID, INCREMENTS

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

PAUSES = ("pause long", "pause brief")
"""A long one is ended when all is healed."""
AGAIN_SECONDS = 1.0
ASK_SECONDS = 0.2


def draw_pauses(rng: random.Random) -> list[str]:
    return [rng.choice(PAUSES) for _ in range(rng.choice((1, 2, 0, 0, 0)))]


class Pauses:
    """The pauses of a history, and what was answered."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[str, int] = {}
        """Reason → partition."""
        self._ended_ms: dict[str, int] = {}
        """Reason → when its end was asked for first."""
        self._taken: set[str] = set()
        """The reasons of those that a process has taken."""

    def happen(self, how: str, seconds: float) -> bool:
        number, reason = self._world.rng.randrange(self._world.scenario.partitions), f"reason {len(self._asked)}"
        self._asked[reason] = number
        self._pause(number, Paused(wall_ms(), reason))
        if how == "brief":
            self._world.loop.call_later(seconds, self._resume, number, context=NOWHERE)
        return True

    def end_all(self) -> None:
        """End them, and those that a process hears of late."""
        if self._asked and not self._world.ending:
            for number in range(self._world.scenario.partitions):
                self._resume(number)
            self._world.loop.call_later(AGAIN_SECONDS, self.end_all, context=NOWHERE)

    def follow(self, story: History, increment: Increment) -> None:
        """Look at the increment that follows `story.last`. Raises Violation: an operator is not obeyed."""
        where, now = f"partition {story.number} batch {increment.batch}", increment.paused
        before = story.last.paused if story.last is not None else None
        if now is not None:
            require(self._asked.get(now.reason) == story.number, f"{where} is paused without a request: {now}")
        if before is None or story.last is None:
            return
        if now != before:
            is_ended = increment.written_at_ms >= self._ended_ms.get(before.reason, increment.written_at_ms + 1)
            require(is_ended, f"{where} has lost {before}, which was not ended by then")
            return
        done = increment.ranges or increment.fired_count or increment.stream_time_ms != story.last.stream_time_ms
        require(not done, f"{where} continues in {before}: {increment.ranges}, {increment.fired_count} timers")
        story.met["pause of a former owner"] += increment.owner_epoch != story.last.owner_epoch

    def _pause(self, number: int, paused: Paused) -> None:
        """Ask until somebody has the partition LIVE."""
        if paused.reason not in self._taken | self._ended_ms.keys() and not self._world.healing:
            self._ask(number, paused)
            self._world.loop.call_later(ASK_SECONDS, self._pause, number, paused, context=NOWHERE)

    def _resume(self, number: int) -> None:
        for reason in [reason for reason, at in self._asked.items() if at == number]:
            self._ended_ms.setdefault(reason, wall_ms())
        self._ask(number, None)

    def _ask(self, number: int, paused: Paused | None) -> None:
        """Ask every process: a zombie may be among them."""
        for process in list(self._world.processes):
            process.soon(self._request, process, number, paused)

    def _request(self, process: Process, number: int, paused: Paused | None) -> None:
        runner = process.supervisor.runners.get(number) if process.supervisor is not None else None
        took = runner is not None and runner.request_pause(paused, partial(self._answered, process, paused))
        if took and paused is not None:
            self._taken.add(paused.reason)

    def _answered(self, process: Process, paused: Paused | None, state: str, _: str | None, __: str) -> None:
        """Check that the log has a pause that is reported as committed, unless its coordinator has forgotten it."""
        if process.dead:
            return
        network = self._world.network
        network.met(f"{'resume' if paused is None else 'pause'} {state}")
        if paused is None or state != "succeeded":
            return
        number, broker = self._asked[paused.reason], self._world.broker
        logs = [broker.by_id[each][number] for each in broker.ids_of[INCREMENTS]]
        found = any(isinstance(each, Increment) and each.paused == paused for log in logs for each, _ in told.ever(log))
        if not found and names.transactional_id(APP_ID, number) not in broker.torn:
            network.misused(f"{process.name} reports {paused} of partition {number}, which is not committed")

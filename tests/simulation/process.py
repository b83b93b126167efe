"""One simulated process: the real supervisor and runners, on ports in memory."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from snapreplay.app.app import App
from snapreplay.app.call import Call
from snapreplay.errors import NotBegun, RetryableError, UsageError
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.refusals import DuplicateInstance, WrongLog
from snapreplay.service.decisions.first_start import begun
from snapreplay.service.runtime.context import ClusterView, Identity
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.supervisor import Supervisor
from tests.simulation.cluster import SimCluster, SimGroup
from tests.simulation.loop import Host
from tests.simulation.network import NOWHERE, Link, Owner

if TYPE_CHECKING:
    from tests.simulation.world import World

NOTHING = Share()
STALL_SECONDS = (0.05, 0.3, 1.2, 2.5, 5.0)
"""Shorter and longer than the commit deadline (1 s), the session (1.5 s) and the transaction timeout (2 s)."""


class Process(Host, Owner):
    """Mirrors `embed.Service` without HTTP and threads. `begin` once."""

    def __init__(self, home: World, name: str, app: App[Any], settings: Settings, slice_records: int) -> None:
        super().__init__()
        self.name, self.app, self.settings = name, app, settings
        self.instance_id = settings.instance_id
        self.dead = False
        self.packets_lost = False
        self.stepped_down = False
        self._stays_away = False
        self.stopping = False
        self.board: StatusBoard = StatusBoard()
        self.supervisor: Supervisor | None = None
        self.pulse = Pulse(home.network.loop.time)
        self._beating: asyncio.Task[None] | None = None
        self._bringing_up: asyncio.Task[None] | None = None
        self.identity = Identity(uuid.uuid4().hex, self.instance_id, name, 1, wall_ms())
        self._home = home
        self._network = home.network
        self.link = Link(home.network, self)
        drawn = home.scenario
        self.cluster = SimCluster(
            self.link, settings, slice_records, drawn.ahead_records, brokers_agree=drawn.brokers_agree
        )

    def begin(self) -> None:
        self._beating = self.spawn(self.pulse.beat())
        self._bringing_up = self.spawn(self._bring_up())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.context.copy().run(self._network.loop.create_task, work)

    def soon(self, what: Callable[..., object], *arguments: Any) -> None:
        """Call it as a part of this process: held back while that is stalled."""
        self._network.loop.call_soon(what, *arguments, context=self.context.copy())

    def assigned(self, partitions: set[int], share: Share = NOTHING) -> None:
        if self.supervisor is not None and not self.dead and not self.stepped_down:
            self._home.suspicions.look(self)
            self.supervisor.assigned(partitions, share)
            self._home.suspicions.assigned(self, share)

    def crash(self) -> None:
        """Crash as by SIGKILL: nothing of it reaches the broker any more, except what was sent already."""
        if self.dead:
            return
        self._network.trace(self.name, "crashes")
        self.dead = True
        self.packets_lost = self._network.rng.random() < 0.5
        self._network.loop.resume(self)
        for task in self.tasks:
            task.cancel()
        self._home.crashed(self)

    def stall(self, seconds: float | None = None) -> None:
        """Stall as by SIGSTOP, and SIGCONT later."""
        if self.stalled or self.dead:
            return
        if seconds is None:
            seconds = self._network.rng.choice(STALL_SECONDS) * (0.5 + self._network.rng.random())
        self._network.trace(self.name, f"stalls for {seconds:.2f} s")
        self.stalled = True
        self._network.loop.call_later(seconds, self.wake, context=NOWHERE)
        self._home.group.silent(self, seconds)
        self._home.suspicions.stalled(self, seconds)

    def wake(self) -> None:
        if self.stalled:
            self._network.trace(self.name, "continues")
            self._network.loop.resume(self)

    async def stop(self, *, last_snapshot: bool) -> None:
        """Stop as on SIGTERM, without leaving the group."""
        self.stopping = True
        if self._bringing_up is not None:
            await cancel_and_wait(self._bringing_up)
        if self.supervisor is not None:
            is_given_away = await self._home.group.hand_over(self)
            last_snapshot = last_snapshot and not is_given_away
            await self.supervisor.stop(last_snapshot=last_snapshot, deadline_seconds=20.0)
        if self._beating is not None:
            await cancel_and_wait(self._beating)

    async def asked(self, call: Call[str, str]) -> str:
        """Answer a call that a partition of this process makes."""
        return await self._home.outside.answer(self, call)

    @property
    def left_over(self) -> list[asyncio.Task[Any]]:
        return [task for task in self.tasks if not task.done()]

    async def _bring_up(self) -> None:
        view = await self._inspect()
        self.supervisor = Supervisor(
            self.app, self.settings, self.cluster, view, self.identity, self.board, self._failed
        )
        self.supervisor.pulse = self.pulse
        self.supervisor.group = SimGroup(
            self.link, lambda number: self._home.group.gives(self, number), lambda: self._home.group.rejoin(self)
        )
        self._home.group.join(self)

    @property
    def broken(self) -> list[BaseException]:
        """The errors of its runners, who end with nothing."""
        runners = (task for task in self.tasks if task.get_name().startswith("partition-"))
        done = [task for task in runners if task.done() and not task.cancelled()]
        return [error for task in done if (error := task.exception()) is not None]

    async def _inspect(self) -> ClusterView:
        while True:
            try:
                return await begun(self.app, self.settings, self.cluster, "wait", self._waits)
            except (RetryableError, UsageError, WrongLog):  # an input is missing: somebody starts it again
                await asyncio.sleep(0.5)

    def _waits(self, _: NotBegun) -> None:
        self._network.met("waits for its genesis")

    def _failed(self, _: int, error: BaseException) -> None:
        """Step down as `Service` does: all partitions at once, until the other one is gone."""
        if isinstance(error, WrongLog):
            self._stays_away = True
            self._home.group.leave(self)
        if self.stepped_down or not isinstance(error, DuplicateInstance):
            return
        self._network.met("stepped down for a younger process of the same name")
        self.stepped_down = True
        if self.supervisor is not None:
            self.supervisor.stand_aside(error)
        self._home.group.stand_aside(self)

    def retry(self, number: int) -> None:
        """Retry as an operator asks: the FAILED partition recovers again, and who has left the group joins it."""

        def done(state: str, _: str | None, __: str) -> None:
            self._network.met(f"retry {state}")

        if self.supervisor is not None and not self.dead:
            self.supervisor.retry(number, done)
            if self._stays_away:
                self._stays_away = False
                self._home.group.join(self)

    def comes_back(self) -> None:
        self._network.met("came back after the younger process was gone")
        self.stepped_down = False

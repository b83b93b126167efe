"""A running service: in a process of its own (`run`), or inside an asyncio program (`running`, `Service`)."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.counted import counted
from snapreplay.errors import AccessError, RetryableError, StopError, UsageError
from snapreplay.service.config.settings import Settings, load_settings
from snapreplay.service.control.protocol import Control, OnDone, Operation, OperationState
from snapreplay.service.control.status import PartitionStatus, StatusBoard
from snapreplay.service.core.custody import StateUnsaved
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.kafka.client_log import summarise_client_log
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.membership import Membership
from snapreplay.service.loop_thread import LoopThread
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.preflight import inspect
from snapreplay.service.runtime.context import ClusterView, Identity
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.runtime.tasks import cancel_and_wait, watched
from snapreplay.service.service_control import Callbacks, ServiceControl
from snapreplay.service.supervisor import Supervisor

log = logging.getLogger("snapreplay")

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.5, 10.0
LEAVE_SECONDS = 5.0  # of a stop, for cutting off what is late and leaving the group
LEAVE_SECONDS_MIN = 1.0  # all the same, when cutting off took longer


class Http(Protocol):
    """Serves `Control` over HTTP in the loop it is called in. `snapreplay.api.server.HttpServer` is one."""

    async def serve(self, control: Control, host: str, port: int) -> tuple[str, int]:
        """Begin to listen; returns the address bound to."""

    async def close(self) -> None: ...


class NotLive(StopError):
    """The partitions did not become LIVE in time, or one of them FAILED."""


class Service:
    """One app in this process. `start` once, `stop` once, both in the loop that is to run the handlers."""

    def __init__(
        self, app: App[Any], settings: Settings | None = None, http: Http | None = None
    ) -> None:
        app.validate()
        self.app = app
        self.settings = settings or load_settings()
        self._http = http
        self._identity = Identity.of_this_process(self.settings.instance_id)
        self._board = StatusBoard()
        self._background = LoopThread("snapreplay-control")
        self._cluster = KafkaCluster(self.settings)
        self._supervisor: Supervisor | None = None
        self._membership: Membership | None = None
        self._bringing_up: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulse = Pulse()
        self._control = ServiceControl(
            app,
            self._identity,
            self._board,
            Callbacks(
                self._request_snapshot,
                self._request_adoption,
                self._request_retry,
                self._membership_trouble,
                self._standing_aside,
            ),
            self._pulse,
        )
        self.http_address: tuple[str, int] | None = None

    @property
    def control(self) -> Control:
        """What HTTP sees; thread-safe."""
        return self._control

    def restore_status(self) -> list[PartitionStatus]:
        """Every owned partition, ordered by number; empty before the first assignment."""
        return self._board.all()

    def view(self, partition: int) -> Any:
        """Read-only state of a LIVE partition as of the last committed batch: of a `MapState` a mapping, of `Stores`
        an object with such a mapping for each store. Do not keep it: it is empty once the
        partition is restored or belongs to another process.

        Raises:
            KeyError: the partition is not LIVE here.
            UsageError: the state is no map.
        """
        runner = self._supervisor.runners.get(partition) if self._supervisor else None
        if runner is None or runner.store is None:
            raise KeyError(partition)
        return runner.store.committed_view()

    async def start(self) -> None:
        """HTTP is up when this returns; the cluster may still be unreachable (see `wait_live`).

        Raises:
            UsageError: the HTTP port is taken.
        """
        self._loop = asyncio.get_running_loop()
        self._background.start()
        if self._http is not None:
            http = self.settings.http
            self.http_address = await self._background.run(
                self._http.serve(self._control, http.host, http.port)
            )
        self._bringing_up = self._loop.create_task(self._bring_up(), name="bring-up")
        self._control.beat(self._loop)

    async def wait_started(self) -> None:
        """Wait until the app is checked against the cluster and membership has begun.

        Raises:
            UsageError, StopError, AccessError: refused, with the command that repairs it.
        """
        if self._bringing_up is None:
            raise UsageError("the service was not started")
        await asyncio.shield(self._bringing_up)

    async def wait_live(self, timeout_seconds: float | None = None) -> None:
        """Wait until this process is a member and every partition that it owns is LIVE.

        Raises:
            UsageError, StopError, AccessError: refused at start.
            NotLive: the time is over, or a partition FAILED; names phase and error.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.wait_started()
                await self._until_ready()
        except TimeoutError:
            raise self._not_live(f"not LIVE after {timeout_seconds} s") from None

    async def trigger_snapshot(
        self, partitions: Sequence[int] | None = None, reason: str = ""
    ) -> Operation:
        """Write full snapshots of these partitions (None: of all that are LIVE) and wait until they are pointed to.

        Returns:
            The ended operation; its state is "succeeded" or "failed".

        Raises:
            UnknownPartition, NotOwned, Busy: nothing was started.
        """
        with self._control.changes(asyncio.get_running_loop()) as changed:
            operation = self._control.trigger_snapshot(partitions, reason)
            while operation.state is OperationState.RUNNING:
                await changed.wait()
                changed.clear()
                operation = self._control.operation(operation.id) or operation
        return operation

    async def stop(self) -> None:
        """Finish the batch under way, write a last snapshot, leave the group. Bounded by timeouts.shutdown_ms.

        Raises:
            StateUnsaved: everything has ended, but the state of partitions was only in this memory: the increments
                topic was deleted, or the snapshots topic and what a recovery needs instead.
        """
        if self._bringing_up is not None:
            await cancel_and_wait(self._bringing_up)
        loop, within_seconds = asyncio.get_running_loop(), self.settings.timeouts.shutdown_ms / 1000
        deadline = loop.time() + within_seconds
        if self._supervisor is not None:
            await self._supervisor.stop(
                final_snapshot=self.settings.snapshot.before_stop,
                deadline_seconds=within_seconds - min(LEAVE_SECONDS, within_seconds / 4),
            )
        if self._background.alive:
            if self._membership is not None:
                left_seconds = max(LEAVE_SECONDS_MIN, deadline - loop.time())
                await self._background.run(self._membership.leave(left_seconds))
            if self._http is not None:
                await self._background.run(self._http.close())
        self._background.stop()
        self._control.stop()
        self._raise_unsaved()

    def _raise_unsaved(self) -> None:
        lost = self._supervisor.lost if self._supervisor is not None else []
        for error in lost:
            log.error("LOST: %s", error.message)
        if lost:
            raise StateUnsaved(
                f"{counted(len(lost), 'partition')} stopped before the state was saved: {lost[0].message}",
                hint="start again: the partition's error names the command that goes on with the rest in the topics",
                partitions=[error.facts["partition"] for error in lost],
            )

    async def _bring_up(self) -> None:
        view = await self._inspect()
        self._control.reached(view)
        loop = asyncio.get_running_loop()
        supervisor = self._supervisor = Supervisor(
            self.app,
            self.settings,
            self._cluster,
            view,
            self._identity,
            self._board,
            self._duplicate,
        )

        def take(partitions: set[int]) -> None:
            if membership.aside is None:  # else this news is from before
                self._control.member_of(partitions)
                supervisor.assigned(partitions)

        async def assigned(partitions: set[int]) -> None:
            loop.call_soon_threadsafe(take, set(partitions))
            if membership.suspects_duplicate:
                loop.call_soon_threadsafe(supervisor.suspect)

        async def revoked(partitions: set[int]) -> None:
            log.info("rebalance: partitions %s run on until the new assignment", sorted(partitions))

        membership = self._membership = Membership(
            self.settings,
            self.app.app_id,
            names.increments_topic(self.app.app_id),
            assigned,
            revoked,
        )
        supervisor.group = membership
        supervisor.pulse = self._pulse
        watched(self._background.submit(membership.run()), "the membership of the group")

    async def _inspect(self) -> ClusterView:
        pause = RETRY_SECONDS_MIN
        while True:
            try:
                return await inspect(self.app, self.settings, self._cluster)
            except AccessError:
                raise  # a mistyped password should be reported at once
            except RetryableError as error:
                self._control.unreachable(error)
                log.warning("cluster not reached, next try in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(RETRY_SECONDS_MAX, pause * 2)

    def _request_snapshot(self, partition: int, reason: str, done: OnDone) -> None:
        """From any thread."""
        self._ask_runner(partition, lambda runner: runner.request_snapshot(reason, done), done)

    def _request_adoption(self, partition: int, manifest_offset: int, done: OnDone) -> None:
        """From any thread."""
        self._ask_runner(
            partition, lambda runner: runner.request_adoption(manifest_offset, done), done
        )

    def _ask_runner(
        self, partition: int, ask: Callable[[PartitionRunner], bool], done: OnDone
    ) -> None:
        """`ask` returns whether the partition is LIVE; else `done` is told."""
        if self._loop is None or self._supervisor is None:
            done(OperationState.FAILED, None, "the service is not running")
            return
        supervisor = self._supervisor

        def asked() -> None:
            runner = supervisor.runners.get(partition)
            if runner is None or not ask(runner):
                done(OperationState.FAILED, None, "the partition is not LIVE here any more")

        self._loop.call_soon_threadsafe(asked)

    def _request_retry(self, partition: int, done: OnDone) -> None:
        """From any thread."""
        aside = self._standing_aside()
        if self._loop is None or self._supervisor is None:
            done(OperationState.FAILED, None, "the service is not running")
        elif aside is not None:  # it would claim what is the other process's
            done(OperationState.FAILED, None, aside)
        else:
            self._loop.call_soon_threadsafe(self._supervisor.retry, partition, done)

    def _membership_trouble(self) -> str | None:
        """From any thread."""
        membership = self._membership
        return membership.trouble if membership is not None else None

    def _standing_aside(self) -> str | None:
        """From any thread."""
        membership = self._membership
        return membership.aside if membership is not None else None

    def _duplicate(self, error: DuplicateInstance) -> None:
        """The older process steps down with all its partitions. The membership is the other's now, so no LeaveGroup is
        sent. When the other process is gone, a new assignment starts them again."""
        if self._membership is None or self._supervisor is None:
            return
        if self._membership.stand_aside(error.other):
            log.error("%s: %s", type(error).__name__, error)
            self._supervisor.stand_aside(error)

    async def _until_ready(self) -> None:
        with self._control.changes(asyncio.get_running_loop()) as changed:
            while not self._control.ready():
                self._raise_failed()
                await changed.wait()
                changed.clear()

    def _raise_failed(self) -> None:
        failed = [s for s in self._board.all() if s.phase == "failed"]
        if failed:
            raise self._not_live("a partition FAILED")

    def _not_live(self, why: str) -> NotLive:
        states = ", ".join(f"{s.partition}: {s.phase.value}" for s in self._board.all())
        errors = [s.error for s in self._board.all() if s.error is not None]
        detail = f"; {errors[0].message}" if errors else ""
        reached = self._control.unreachable_reason
        return NotLive(
            f"{why} (partitions: {states or 'none assigned'}{detail}{f'; {reached}' if reached else ''})",
            hint=errors[0].hint if errors else "",
        )


@asynccontextmanager
async def running(
    app: App[Any], settings: Settings | None = None, http: Http | None = None
) -> AsyncIterator[Service]:
    """A started service for the length of the block; stopped gracefully after it."""
    service = Service(app, settings, http)
    try:
        await service.start()
        yield service
    finally:
        await service.stop()


def run(app: App[Any], settings: Settings | None = None, http: Http | None = None) -> int:
    """Run until SIGTERM or Ctrl-C, then stop gracefully. Returns the process's exit code: 0.

    Raises:
        UsageError, StopError, AccessError: refused before any partition was touched.
    """
    _tune_collector()
    _tune_threads()
    summarise_client_log()
    return asyncio.run(_run(Service(app, settings, http)))


def _tune_collector() -> None:
    """A batch's objects die by reference count; searching them for cycles every 700 allocations costs a tenth of the
    throughput (measured). But closed clients are cycles, and old ones: with rare searches of the older generations,
    memory grew by a megabyte per minute of take-overs (measured). The youngest must not be too many either: 5,000
    objects stop everything for 2 to 3 ms, 20,000 for up to 9 (measured). Only in `run`, whose process is ours."""
    gc.freeze()
    gc.set_threshold(5_000, 8, 2)


def _tune_threads() -> None:
    """A thread that waits for the interpreter gets it after 1 ms, not 5: during a replay that computes, HTTP
    answered in 6 ms instead of 18 (median), and the replay took no longer (measured)."""
    sys.setswitchinterval(0.001)


async def _run(service: Service) -> int:
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    try:
        await service.start()
        waiting = loop.create_task(signalled.wait())
        started = loop.create_task(service.wait_started())
        await asyncio.wait([waiting, started], return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            started.result()
            await waiting
        else:
            started.cancel()
    finally:
        await service.stop()
    return 0

"""A running service, assembled. `program.py` runs it: in a process of its own, or inside an asyncio program."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar, overload
from urllib.parse import urlsplit

from snapreplay.app import names
from snapreplay.app.app import App, check_app
from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings, used_settings
from snapreplay.service.control.operations import (
    Command,
    DrainProcess,
    Operation,
    OperationState,
    PausePartition,
    ResumePartition,
    RetryPartition,
    TriggerSnapshot,
    UndrainProcess,
)
from snapreplay.service.control.protocol import Address, Http
from snapreplay.service.control.status import PartitionStatus, StatusBoard
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.custody import StateUnsaved
from snapreplay.service.core.peers import Peer, declared
from snapreplay.service.core.refusals import DuplicateInstance, WrongLog
from snapreplay.service.decisions.first_start import FirstStart, begun, check_first_start
from snapreplay.service.embedding import CatchingUp, FailureNews, OnFailed, Readiness, Views, reached
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.membership import Membership
from snapreplay.service.loop_thread import LoopThread
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.preflight import warn_mismatched_topics
from snapreplay.service.runtime.broadcasting import as_seen_by
from snapreplay.service.runtime.context import Identity
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.runtime.tasks import cancel_and_wait, watched
from snapreplay.service.service_control import ServiceControl
from snapreplay.service.supervisor import Supervisor
from snapreplay.state.keys import K
from snapreplay.state.map import MapState
from snapreplay.state.stores import Stores
from snapreplay.state.view import MapView, StoresView, View

log = logging.getLogger("snapreplay")

THE_PROGRAM = "the program"
"""Asks, where a program does."""

S = TypeVar("S")
V = TypeVar("V")
ST = TypeVar("ST", bound=Stores)

HTTP_AFTER_SECONDS = 0.2  # at most, after the start
BROKER_PORT = 9092  # Kafka's default, for an address without a port
LEAVE_SECONDS = 5.0  # of a stop, for cutting off what is late and leaving the group
HAND_OVER_SECONDS = 5.0  # at most, of a stop: until the others have taken the partitions
LEAVE_SECONDS_MIN = 1.0  # all the same, when cutting off took longer


class Service(Generic[S]):
    """An app that runs in this process. `running` creates, starts and stops one.

    Without `running`, call `start` once, then `stop` once, both in the event loop that runs the handlers.

    All methods raise ServiceClosed before `start` and after `stop`, and when the service stops while they wait.
    Methods that begin an operation (`trigger_snapshot`, `pause`, `resume`, `retry`, `drain`) raise UnknownPartition,
    PartitionNotLive or Busy if they cannot begin it.
    """

    def __init__(
        self,
        app: App[S],
        settings: Settings | None = None,
        http: Http | None = None,
        *,
        first_start: FirstStart = "wait",
        path: str = "",
    ) -> None:
        """Make a service that is not started yet.

        Args:
            settings: None: from the environment and the file, as for the command line.
            http: serves the HTTP API; None: no HTTP.
            first_start: what to do for an app without a genesis: "wait" until `init` was run, "refuse", or begin it at
                "earliest" or "latest" of its inputs.
            path: below which `http` serves this app; empty: it has the port to itself.

        Raises:
            UsageError: the app is incomplete, or the settings or `first_start` are wrong.
        """
        check_app(app)
        check_first_start(first_start)
        self.app = app
        self.settings = used_settings(settings)
        self._http, self._path = http, path
        self._first_start = first_start
        self._identity = Identity.of_this_process(self.settings.instance_id)
        self._board = StatusBoard()
        self._background = LoopThread("snapreplay-membership")
        self._cluster = KafkaCluster(self.settings)
        self._supervisor: Supervisor | None = None
        self._membership: Membership | None = None
        self._bringing_up: asyncio.Task[None] | None = None
        self.is_start_awaited = False  # if so, a refusal is raised, and not also logged
        self._pulse = Pulse()
        self._control = ServiceControl(app, self._identity, self._board, self._pulse, self.settings, self._cluster)
        self._views = Views(lambda: self._control.facts().partition_count)
        self._readiness = Readiness(self._control, self._board, self._views.check_open)
        self._failures = FailureNews()
        self._bound: Address | None = None
        self.http_address: tuple[str, int] | None = None

    @property
    def control(self) -> ServiceControl:
        """The status, histories and commands of the service, as over HTTP; thread-safe. `control.perform` begins an
        operation that has no method here."""
        return self._control

    def restore_status(self) -> list[PartitionStatus]:
        """Return the status of each owned partition, ordered by number; empty before the first assignment."""
        return self._board.all()

    @overload
    def view(self: Service[MapState[K, V]], partition: int, *, stale: bool = False) -> MapView[K, V]: ...
    @overload
    def view(self: Service[ST], partition: int, *, stale: bool = False) -> StoresView[ST]: ...
    @overload
    def view(self, partition: int, *, stale: bool = False) -> View[S]: ...
    def view(self, partition: int, *, stale: bool = False) -> View[Any]:
        """Return the state of a LIVE partition, read-only, as of the last committed batch. You may keep it: each
        access reads the last committed batch. Use it only in the service's event loop.

        Args:
            stale: if the partition is not LIVE here, read this process's warm copy (`standby.replicas`), which may
                lag behind its owner. `view.position` has the batch, offsets and age of the copy.

        Raises:
            PartitionNotLive: another process owns the partition, or it is not LIVE yet; with `stale`, its copy here
                is loading, or briefly in the middle of a large batch.
            UnknownPartition: the app has no such partition.
            UsageError: this is another thread.
        """
        return self._views.view(partition, stale=stale)

    @overload
    def views(self: Service[MapState[K, V]]) -> dict[int, MapView[K, V]]: ...
    @overload
    def views(self: Service[ST]) -> dict[int, StoresView[ST]]: ...
    @overload
    def views(self) -> dict[int, View[S]]: ...
    def views(self) -> Mapping[int, View[Any]]:
        """Return the views of all partitions that are LIVE here, ordered by number. May be empty.

        Raises:
            UsageError: as `view`.
        """
        return self._views.views()

    def on_failed(self, callback: OnFailed) -> None:
        """Call `callback(partition, error)` in the service's event loop when a partition becomes FAILED. Its
        exceptions are logged.

        Raises:
            UsageError: it cannot be called, or it is a coroutine function.
        """
        self._failures.add(callback)

    # ---- Operations on this process and its partitions, for the service's loop only. Each method waits for the end of
    # its operation and returns it: its state is "succeeded", "failed" or "cancelled", and each of its parts says why.

    async def trigger_snapshot(self, partitions: Sequence[int] | None = None, reason: str = "") -> Operation:
        """Write full snapshots of these partitions (None: all LIVE ones), and wait until increments point to them.

        Returns:
            The ended operation; its state is "succeeded" or "failed".
        """
        return await self._ended(TriggerSnapshot(None if partitions is None else tuple(partitions), reason))

    async def pause(self, partition: int, reason: str = "") -> Operation:
        """Stop processing a LIVE partition until `resume`, also across restarts. The current batch is committed."""
        return await self._ended(PausePartition(partition, reason))

    async def resume(self, partition: int) -> Operation:
        """Process a paused partition again, beginning with the next record."""
        return await self._ended(ResumePartition(partition))

    async def retry(self, partition: int) -> Operation:
        """Let a FAILED partition recover again, after the cause was repaired or accepted, and wait until it is LIVE.

        Raises:
            NotFailed: nothing was started.
        """
        return await self._ended(RetryPartition(partition))

    async def drain(self, reason: str = "") -> Operation:
        """Hand all partitions over to other processes before maintenance, and wait until that is done. This process
        takes none until `undrain` or a restart, unless no other process is left.

        Returns:
            The ended operation; "cancelled" if it was undrained meanwhile.

        Raises:
            NoSuccessor: nothing was started.
        """
        return await self._ended(DrainProcess(by=THE_PROGRAM, reason=reason))

    async def undrain(self) -> None:
        """Take partitions again, when the group assigns them."""
        await self._ended(UndrainProcess(by=THE_PROGRAM))

    async def _ended(self, command: Command) -> Operation:
        self._views.check_open()
        with self._control.changes(asyncio.get_running_loop()) as changed:
            operation = self._control.perform(command)
            while operation.state is OperationState.RUNNING:
                await changed.wait()
                changed.clear()
                operation = self._control.operation(operation.id) or operation
        return operation

    # ---- start, waiting, stop

    async def start(self) -> None:
        """Start the service in the background, and HTTP. The cluster may still be unreachable when this returns.

        Raises:
            UsageError: the HTTP port is taken.
        """
        loop = asyncio.get_running_loop()
        self._background.start()
        self._cluster.hold()
        self._views.open(lambda: self._runners, lambda: self._supervisor.standbys if self._supervisor else None)
        if self._http is not None:  # the others learn the address
            self._bound = self._http.bind(self.settings.http)
        self._bringing_up = loop.create_task(self._bring_up(), name="bring-up")
        self._bringing_up.add_done_callback(self._tell_refused)
        self._control.beat(loop)
        if self._http is not None:
            if not self._path:  # an app with a path shares the port with others
                await self._let_restore_go_first(self._bringing_up)
            self.http_address = await self._http.serve(self._control, self.settings.http, self._path)

    async def _let_restore_go_first(self, bringing_up: asyncio.Task[None]) -> None:
        """Wait until all partitions are LIVE, at most HTTP_AFTER_SECONDS: importing the HTTP server would hold the
        interpreter's lock. Until then requests wait in the port's queue."""
        with suppress(Exception):  # it is raised by `wait_started`
            async with asyncio.timeout(HTTP_AFTER_SECONDS):
                await asyncio.shield(bringing_up)
                await self._readiness.until_ready()

    async def wait_started(self) -> None:
        """Wait until the app has been checked against the cluster and is joining the group.

        Raises:
            UsageError, StopError, AccessError: refused, with the command that repairs it.
        """
        self._views.check_open()
        assert self._bringing_up is not None  # noqa: S101 - it is open
        self.is_start_awaited = True
        try:
            await asyncio.shield(self._bringing_up)
        except asyncio.CancelledError:  # of the caller, or of what it waits for
            if self._bringing_up.cancelled():
                self._views.check_open()
            raise

    async def wait_live(self, timeout_seconds: float | None = None) -> None:
        """Wait until this process is a member of the group and every partition that it owns is LIVE.

        Raises:
            UsageError, StopError, AccessError: refused at start.
            NotLive: the time is over, or a partition is FAILED; names phase and error.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.wait_started()
                await self._readiness.until_ready()
        except TimeoutError:
            raise self._readiness.not_live(f"not LIVE after {timeout_seconds} s") from None

    async def wait_caught_up(self, timeout_seconds: float | None = None) -> None:
        """Wait until every partition that this process owns is LIVE and has committed all records that were in its
        inputs at the time of the call.

        Raises:
            UsageError, StopError, AccessError: refused at start.
            NotLive: a partition is FAILED.
            NotCaughtUp: the time is over, or a partition that is behind is paused; names what is missing.
        """
        catching_up = CatchingUp(
            as_seen_by(self.app, self._cluster), lambda: self._runners, self._readiness.raise_hopeless
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.wait_started()
                await self._readiness.until_ready()
                await catching_up.wait()
        except TimeoutError:
            raise self._readiness.not_caught_up(timeout_seconds, catching_up.missing()) from None

    async def stop(self) -> None:
        """Finish the current batch, write a last snapshot if there is something new, and leave the group, within
        `timeouts.shutdown_ms`.

        Raises:
            StateUnsaved: the service has stopped, but the state of some partitions was only in memory: the increments
                topic was deleted, or the snapshots topic together with the records that could replace it.
        """
        self._views.close()
        await self._control.kept.close()
        await self._control.letters.close()
        if self._bringing_up is not None:
            await cancel_and_wait(self._bringing_up)
        loop, within_seconds = asyncio.get_running_loop(), self.settings.timeouts.shutdown_ms / 1000
        deadline = loop.time() + within_seconds
        if self._supervisor is not None:
            is_given_away = await self._handed_over(within_seconds)
            await self._supervisor.stop(
                last_snapshot=self.settings.snapshot.before_stop and not is_given_away,
                deadline_seconds=deadline - loop.time() - min(LEAVE_SECONDS, within_seconds / 4),
            )
        left_seconds = max(LEAVE_SECONDS_MIN, deadline - loop.time())
        closing = loop.create_task(self._http.close(left_seconds, self._path)) if self._http is not None else None
        if self._background.alive and self._membership is not None:
            await self._background.run(self._membership.leave(left_seconds))
        if closing is not None:
            await closing
        await self._cluster.let_go()
        self._background.stop()
        self._control.stop()
        self._raise_unsaved()

    async def _handed_over(self, within_seconds: float) -> bool:
        """Process until the others have our partitions: their warm copies are soon LIVE. Say whether they have all."""
        membership, supervisor = self._membership, self._supervisor
        if not self.settings.standby.replicas or not self._background.alive or membership is None:
            return False
        await self._background.run(membership.hand_over(min(HAND_OVER_SECONDS, within_seconds / 4)))
        is_left = supervisor is not None and supervisor.taken_over  # the group does not know of these
        return membership.trouble is None and not membership.assignment and not is_left

    def _raise_unsaved(self) -> None:
        if unsaved := self._supervisor.unsaved if self._supervisor is not None else []:
            for error in unsaved:
                log.error("LOST: %s", error.message)
            raise StateUnsaved(
                f"{counted(len(unsaved), 'partition')} stopped before the state was saved: {unsaved[0].message}",
                hint="start again: the partition's error names the command that continues with what the topics hold",
                partitions=[error.facts["partition"] for error in unsaved],
            )

    @property
    def _runners(self) -> Mapping[int, PartitionRunner]:
        return self._supervisor.runners if self._supervisor is not None else {}

    def _tell_refused(self, ended: asyncio.Task[None]) -> None:
        """Tell that the service is refused; the program may wait for nothing: then only the log and `/readyz` say
        that no partition will ever run."""
        error = None if ended.cancelled() else ended.exception()
        if error is None:
            return
        self._control.refused(error)
        if not self.is_start_awaited:
            defect = None if isinstance(error, SnapreplayError) else error
            log.error("the service was refused: %s", error, exc_info=defect)

    async def _bring_up(self) -> None:
        begin = partial(begun, self.app, self.settings, self._cluster, self._first_start, self._waiting)
        view = await reached(begin, self._control.unreachable)
        self._control.reached(view)
        warn_mismatched_topics(self.app, view)
        loop, me = asyncio.get_running_loop(), self._identity
        supervisor = self._supervisor = Supervisor(
            self.app, self.settings, self._cluster, view, me, self._board, self._failed
        )

        def take(partitions: set[int], share: Share) -> None:
            if membership.aside is None:  # else this news is from before
                supervisor.assigned(partitions, share)
                self._control.member_of(partitions, share)

        async def assigned(partitions: set[int]) -> None:
            loop.call_soon_threadsafe(take, set(partitions), membership.share)

        async def revoked(partitions: set[int]) -> None:
            log.info("rebalance: partitions %s run on until the new assignment", sorted(partitions))

        membership = self._membership = Membership(
            self.settings,
            self.app.app_id,
            names.increments_topic(self.app.app_id),
            assigned,
            revoked,
            lambda: supervisor.holding,
            Peer(
                me.process_id,
                me.instance_id,
                me.host,
                await advertised_url(self.settings, self._bound, self._path),
                declares=declared(self.app),
            ),
        )
        supervisor.group = membership
        supervisor.pulse = self._pulse
        self._control.open(supervisor, membership, loop)
        watched(self._background.submit(membership.run()), "the membership of the group")

    def _waiting(self, awaited: SnapreplayError) -> None:
        if self._control.waits_for(awaited):
            log.warning("WAITING: %s (%s)", awaited.message, awaited.hint)

    def _failed(self, partition: int, error: BaseException) -> None:
        if isinstance(error, DuplicateInstance):
            self._step_down(error)
            return
        if isinstance(error, WrongLog) and self._membership is not None:
            log.error(
                "left the group: the increments topic here belongs to another app, cluster or set of inputs, and so may"
                " the group; `snapreplay retry` joins it again"
            )
            self._membership.stay_away(error.message)
        self._failures.tell(partition, error)

    def _step_down(self, error: DuplicateInstance) -> None:
        """Leave all partitions, as the older process. The membership is the other's now, so no LeaveGroup
        is sent. When the other process is gone, a new assignment starts them again."""
        if self._membership is None or self._supervisor is None:
            return
        if self._membership.stand_aside(error.other):
            log.error("%s: %s", type(error).__name__, error)
            self._supervisor.stand_aside(error)


async def advertised_url(settings: Settings, bound: Address | None, path: str = "") -> str:
    """Return the URL by which other processes reach the HTTP API of this one; empty: there is none.

    Args:
        bound: where it listens.
        path: of the app, below which the API is.
    """
    url = settings.http.advertised_url
    if bound is None:
        return ""
    if url or not bound.is_any:
        return (url or bound.url) + path
    family = socket.AF_INET6 if ":" in bound.host else socket.AF_INET
    host = await asyncio.to_thread(local_host, settings.bootstrap_servers, family)
    return type(bound)(host, bound.port).url + path if host else ""


def local_host(bootstrap_servers: Sequence[str], family: socket.AddressFamily) -> str:
    """Return the local address of this family on the way to the first broker that has one; empty: none has. Nothing
    is sent; names are resolved, which may take time."""
    for server in bootstrap_servers:
        broker = urlsplit(f"//{server}")
        try:
            for *_, address in socket.getaddrinfo(
                broker.hostname, broker.port or BROKER_PORT, family, socket.SOCK_DGRAM
            ):
                with socket.socket(family, socket.SOCK_DGRAM) as towards:
                    towards.connect(address)
                    return str(towards.getsockname()[0])
        except OSError:
            continue
    return ""

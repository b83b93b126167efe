"""The `Control` of a running service: answers from statuses and counters, never waits for the runners' loop, into
which it carries what HTTP asks of the runners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import snapreplay
from snapreplay import engine
from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.topic import InternalTopic, Topic
from snapreplay.errors import PartitionNotLive, SnapreplayError, UnknownPartition
from snapreplay.service.clock import boot_seconds, time_of, wall_time
from snapreplay.service.config.settings import Settings, effective
from snapreplay.service.control.draining import Draining
from snapreplay.service.control.kafka_reads import (
    DeadLetterList,
    KeyHistory,
    PartitionHistory,
    ReadKeyHistory,
    SavepointList,
)
from snapreplay.service.control.operation_registry import OperationRegistry, Part
from snapreplay.service.control.operations import (
    CancelOperation,
    Command,
    NotFailed,
    OnDone,
    Operation,
    OperationState,
    PartitionsCommand,
    ProcessCommand,
    RedriveDeadLetters,
    RetryPartition,
    SavepointCommand,
    UndrainProcess,
)
from snapreplay.service.control.protocol import (
    Check,
    ServiceFacts,
    StatusDocument,
    Topology,
    TopologyInput,
    partition_check,
)
from snapreplay.service.control.state_reads import StateAnswer, StateRead
from snapreplay.service.control.status import PartitionStatus, SnapshotsSeen, StatusBoard
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer, declared, other_programs
from snapreplay.service.core.phase import Phase
from snapreplay.service.dead_letters import DeadLetters
from snapreplay.service.decisions.savepoints import Savepoints
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.membership import Membership
from snapreplay.service.kafka.throttling import THROTTLING
from snapreplay.service.ports import TopicPartition
from snapreplay.service.runtime.context import ClusterView, Identity
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.state_reads import StateReads, running
from snapreplay.service.supervisor import Supervisor
from snapreplay.service.topics.histories import history_of, key_history_of

log = logging.getLogger("snapreplay")

UNREADY_SECONDS = 2.0  # then not ready: this process would not notice that its partitions were taken
STUCK_SECONDS = 600.0  # a handler may block for minutes; a loop that is silent for longer is dead
WAKE_SECONDS = 1.0

_Act = Callable[[Supervisor, int, Part], None]


class _Since:
    """The time when the present trouble was first seen."""

    def __init__(self) -> None:
        self._at: datetime | None = None

    def of(self, trouble: str | None) -> datetime | None:
        """Return when this trouble was first seen; None without one. What ends between two calls is missed."""
        self._at = None if trouble is None else self._at or wall_time()
        return self._at


class _Waking:
    """Wakes all who wait. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @contextmanager
    def changes(self, loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Event]:
        """Provide an event of `loop` that is set at every change, for the length of the block."""
        waiting = (loop, asyncio.Event())
        self._waiting.append(waiting)
        try:
            yield waiting[1]
        finally:
            self._waiting.remove(waiting)

    def wake(self, *_: object) -> None:
        for loop, event in tuple(self._waiting):
            loop.call_soon_threadsafe(event.set)


def _topology(app: App[Any]) -> Topology:
    def name(topic: Topic[Any, Any]) -> str:
        return getattr(app.handlers.get(topic), "__name__", "")

    return Topology(
        tuple(TopologyInput(each.name, name(each), isinstance(each, InternalTopic)) for each in app.inputs),
        tuple(each.name for each in app.outputs),
        tuple(app.timers),
        tuple(app.calls),
    )


def _begin(command: PartitionsCommand, supervisor: Supervisor, partition: int, done: Part) -> None:
    runner = supervisor.runners.get(partition)
    if runner is None or not command.begin(runner, done):
        done(OperationState.FAILED, None, "the partition is no longer LIVE here")


class ServiceControl:
    """The control of a service. The service tells it what happens; HTTP asks it, as `Control` says in which thread."""

    def __init__(
        self,
        app: App[Any],
        identity: Identity,
        board: StatusBoard,
        pulse: Pulse,
        settings: Settings,
        cluster: KafkaCluster,
    ) -> None:
        """Take `pulse`: of the runners' loop."""
        self.kept = Savepoints(app, settings, cluster)
        self.letters = DeadLetters(app, settings, cluster)
        self._settings = effective(settings)
        self._topology = _topology(app)
        self._app = app
        self._identity = identity
        self._board = board
        self._loop: asyncio.AbstractEventLoop | None = None
        self._supervisor: Supervisor | None = None
        self._membership: Membership | None = None
        self._operations = OperationRegistry()
        self._draining = Draining(self._operations, self._held)
        self._reads = StateReads(app, identity)
        self._snapshots = SnapshotsSeen()
        self._view: ClusterView | None = None
        self._assigned: set[int] | None = None
        self._cut_off = _Since()
        self._pulse = pulse
        self._beating: list[asyncio.Task[None]] = []
        self._waking = _Waking()
        self.changes, self._wake = self._waking.changes, self._waking.wake
        self.unreachable_reason: str | None = None
        self.awaited: SnapreplayError | None = None
        self._other_programs: dict[str, str] = {}
        board.subscribe(self._snapshots.add)
        board.subscribe(self._wake)

    # ---- what HTTP asks ----

    def document(self) -> StatusDocument:
        return StatusDocument(
            facts=self.facts(),
            partitions=tuple(self._board.all()),
            standbys=tuple(self._board.standbys()),
            snapshots=tuple(self._snapshots.all()),
            operations=tuple(self._operations.all()),
            live_checks=tuple(self.live_checks()),
            ready_checks=tuple(self.ready_checks()),
            made_at=boot_seconds(),
            settings=self._settings,
            peers=self._peers(),
            copies=self._membership.share.copied if self._membership is not None else None,
        )

    def perform(self, command: Command) -> Operation:
        match command:
            case RetryPartition(partition):
                return self._retried(command, partition)
            case PartitionsCommand():
                return self._begun(command, self._wanted(command.numbers), partial(_begin, command))
            case ProcessCommand():
                return self._set_drained(command)
            case SavepointCommand():
                return self._savepoint(command)
            case RedriveDeadLetters():
                return self._redrive(command)
            case CancelOperation(operation_id):
                return self._cancel(operation_id, command.by)
            case _:
                raise TypeError(f"no command of a service: {command!r}")

    def read(self, read: StateRead) -> StateAnswer:
        return self._reads.read(read, *running(self._supervisor, self._view, read.partition or 0))

    async def savepoints(self) -> SavepointList:
        return await self.kept.read()

    async def dead_letters(self) -> DeadLetterList:
        running(self._supervisor, self._view, 0)
        return await self.letters.read()

    async def history(self, partition: int) -> PartitionHistory:
        supervisor, _ = running(self._supervisor, self._view, partition)
        return await history_of(supervisor.cluster, self._log(partition))

    async def key_history(self, read: ReadKeyHistory) -> KeyHistory:
        supervisor, partition_count = running(self._supervisor, self._view, read.partition)
        key, log = self._reads.encoded_key(read), self._log(read.partition)
        return await key_history_of(supervisor.cluster, log, read, key, partition_count)

    def _log(self, partition: int) -> TopicPartition:
        return TopicPartition(names.increments_topic(self._app.app_id), partition)

    def suspect(self, process_id: str, why: str, silent_seconds: float | None = None) -> None:
        if self._loop is None or self._supervisor is None or self._membership is None:
            return
        trouble = self._membership.trouble or self._membership.aside
        if trouble is None:  # else it may be this process that is cut off
            take_over = partial(self._supervisor.take_over, process_id, why, silent_seconds=silent_seconds)
            self._loop.call_soon_threadsafe(take_over)
        else:
            log.warning("process %s seems to be dead (%s), but nothing is taken over: %s", process_id, why, trouble)

    def facts(self) -> ServiceFacts:
        view = self._supervisor.view if self._supervisor is not None else self._view
        me = self._identity
        return ServiceFacts(
            *(self._app.app_id, self._app.version, snapreplay.__version__, me.instance_id, me.process_id, me.host),
            started_at=time_of(me.started_at_ms),
            cluster_id=view.cluster_id if view else None,
            partition_count=view.partition_count if view else None,
            waiting_for=self.waiting_for,
            topics_not_read=view.not_read if view else (),
            drain=self._draining.status,
            trouble=self.trouble,
            engine=engine.name,
            topology=self._topology,
        )

    def operation(self, operation_id: str) -> Operation | None:
        return self._operations.get(operation_id)

    def live_checks(self) -> Sequence[Check]:
        checks = [self._loop_check(STUCK_SECONDS)]
        aside = self._standing_aside()
        if aside is not None:  # killed and started again, it would be the younger one and throw out the other
            checks.append(Check("instance id", ok=True, detail=aside))
        return checks

    def ready_checks(self) -> Sequence[Check]:
        is_reached = self._view is not None or self.awaited is not None
        reached = self.unreachable_reason or ("reached" if is_reached else "not reached yet")
        trouble, aside = self._membership.trouble if self._membership else None, self._standing_aside()
        member = trouble or ("stepped down" if aside else "of the app's group")
        is_member = self._assigned is not None and trouble is None and aside is None
        checks = [
            *([Check("genesis", ok=False, detail=self.waiting_for)] if self.waiting_for else []),
            Check("cluster", is_reached and self.unreachable_reason is None, reached),
            Check("member", is_member, member, self._cut_off.of(trouble)),
            Check("instance id", aside is None, aside or ""),
            self._loop_check(UNREADY_SECONDS),
            *([Check("quotas", ok=True, detail=throttled)] if (throttled := str(THROTTLING)) else []),
            *self._draining.checks(),
        ]
        return [*checks, *(partition_check(number, self._board.get(number)) for number in self._numbers())]

    # ---- what the service tells ----

    def open(self, supervisor: Supervisor, membership: Membership, loop: asyncio.AbstractEventLoop) -> None:
        """Let requests reach the runners, in their `loop`, from now on. Before, each of them fails at once."""
        self._supervisor, self._membership, self._loop = supervisor, membership, loop

    def reached(self, view: ClusterView) -> None:
        self._view, self.unreachable_reason, self.awaited = view, None, None
        self._wake()

    @property
    def waiting_for(self) -> str:
        """The obstacle that keeps the process from joining its group, with the command; empty: nothing."""
        return str(self.awaited or "")

    @property
    def trouble(self) -> str:
        """The reason why the cluster cannot be reached or the group cannot be joined, with the hint; else which
        process of the group runs another program, or which quota is used up; empty: none."""
        kept_out = self.unreachable_reason or (self._membership.trouble if self._membership else None)
        mixed_with = self._membership.mixed_with if self._membership else ""
        return kept_out or mixed_with or "; ".join(self._other_programs.values()) or str(THROTTLING)

    def waits_for(self, awaited: SnapreplayError) -> bool:
        """Note what the service waits for; say whether that is news."""
        is_new = self.awaited is None or self.awaited.message != awaited.message
        self.awaited, self.unreachable_reason = awaited, None
        self._wake()
        return is_new

    def refused(self, error: BaseException) -> None:
        """Note why nothing will ever run."""
        self.unreachable_reason, self.awaited = f"refused: {error}", None
        self._wake()

    def unreachable(self, error: SnapreplayError) -> None:
        self.unreachable_reason = str(error)
        self._wake()

    def member_of(self, partitions: set[int], share: Share | None = None) -> None:
        self._assigned = set(partitions)
        if self._membership is not None and share is not None:
            others = other_programs(self._app.app_id, declared(self._app), share.peers)
            for process_id in others.keys() - self._other_programs.keys():
                log.error("%s", others[process_id])
            self._other_programs = others
        self._wake()

    def ready(self) -> bool:
        return all(check.ok for check in self.ready_checks())

    def beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Show from other threads that the runners' loop turns."""
        self._beating = [loop.create_task(each) for each in (self._pulse.beat(), self._wakeful())]

    def stop(self) -> None:
        for task in self._beating:
            task.cancel()
        self._draining.stopped()
        self._wake()  # those who still wait see that the service has stopped

    async def _wakeful(self) -> None:
        while True:
            self._draining.look(self._peers())
            self._cut_off.of(self._membership.trouble if self._membership else None)  # notes when it begins
            self._wake()  # trouble of the membership begins and ends without a report
            await asyncio.sleep(WAKE_SECONDS)

    # ---- inside ----

    def _retried(self, command: RetryPartition, partition: int) -> Operation:
        status = self._owned(partition)
        if status.phase is not Phase.FAILED:
            raise NotFailed(partition, status.phase.value)
        # While another process has our name, this one would claim what is the other's.
        return self._begun(command, [partition], self._retry, refused=self._standing_aside())

    def _begun(self, command: Command, partitions: Sequence[int], act: _Act, refused: str | None = None) -> Operation:
        """Begin an operation: let each partition `act`, unless it is `refused`."""
        operation = self._operations.create(command, partitions)
        for number in partitions:
            done = Part(self._operations, self._wake, operation.id, number)
            if self._supervisor is None:
                done(OperationState.FAILED, None, "the service is not running")
            elif refused is not None:
                done(OperationState.FAILED, None, refused)
            else:
                act(self._supervisor, number, done)
        return self._operations.get(operation.id) or operation

    def _set_drained(self, asked: ProcessCommand) -> Operation:
        group = self._membership if self._assigned is not None else None
        return self._draining.perform(asked, group, self._peers())

    def _savepoint(self, asked: SavepointCommand) -> Operation:
        if self._view is None:
            raise UnknownPartition(0, None)
        operation = self._operations.create(asked, range(self._view.partition_count))
        self.kept.begin(operation.id, asked, self._parts(operation))
        return operation

    def _redrive(self, asked: RedriveDeadLetters) -> Operation:
        _, partition_count = running(self._supervisor, self._view, 0)
        operation = self._operations.create(asked, range(partition_count))
        self.letters.begin(self._parts(operation))
        return operation

    def _parts(self, operation: Operation) -> list[Part]:
        return [Part(self._operations, self._wake, operation.id, each.partition) for each in operation.parts]

    def _cancel(self, operation_id: str, by: str) -> Operation:
        operation, cancelled = self._operations.cancel(operation_id, f"cancelled by {by}")
        if operation.kind == "drain" and cancelled:
            self._set_drained(UndrainProcess(by=by))
        if operation.kind == "savepoint":
            self.kept.cancel(operation_id)
        elif self._supervisor is not None:
            for number in cancelled:
                done = Part(self._operations, self._wake, operation_id, number)
                self._supervisor.withdraw(number, done)
        return operation

    def _retry(self, supervisor: Supervisor, partition: int, done: OnDone) -> None:
        if self._membership is not None:
            self._membership.come_back()
        supervisor.retry(partition, done)

    def _peers(self) -> tuple[Peer, ...]:
        """Return the others. The name of this process may still stand for its predecessor."""
        known, me = self._membership.share.peers if self._membership is not None else (), self._identity
        return tuple(peer for peer in known if me.process_id != peer.process_id and me.instance_id != peer.instance_id)

    def _standing_aside(self) -> str | None:
        """Say for which process of the same name this one has stepped down; None: it has not."""
        return self._membership.aside if self._membership is not None else None

    def _wanted(self, partitions: Sequence[int] | None) -> list[int]:
        if partitions is None:
            return [s.partition for s in self._board.all() if s.phase is Phase.LIVE]
        for number in partitions:
            status = self._owned(number)
            if status.phase is not Phase.LIVE:
                raise PartitionNotLive(number, f"it is {status.phase.value}")
        return sorted(set(partitions))

    def _owned(self, number: int) -> PartitionStatus:
        count = self._view.partition_count if self._view else None
        if number < 0 or (count is not None and number >= count):
            raise UnknownPartition(number, count)
        status = self._board.get(number)
        if status is None:
            raise PartitionNotLive(number, "this process does not own it")
        return status

    def _loop_check(self, seconds_max: float) -> Check:
        silent_seconds = self._pulse.silent_seconds
        return Check("runner loop", silent_seconds < seconds_max, f"last turn {silent_seconds:.1f} s ago")

    def _held(self) -> frozenset[int]:
        return self._supervisor.held if self._supervisor is not None else frozenset()

    def _numbers(self) -> list[int]:
        """Return the partitions that the group gives us, those that were taken over, and those that are still held."""
        ends = (Phase.LIVE, Phase.CLOSED)
        held = {s.partition for s in self._board.all() if s.error and s.phase not in ends}
        taken_over = self._supervisor.taken_over if self._supervisor is not None else ()
        return sorted(held.union(self._assigned or (), taken_over))

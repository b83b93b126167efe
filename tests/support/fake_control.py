"""`Control` in memory: a process with four partitions of six, each in another phase.

Nothing of Kafka is faked: the protocol asks for statuses and operations only, these are real.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from snapreplay.api.asking import Asking
from snapreplay.api.fleet_views import Covered, Scope, fleet
from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service.clock import boot_seconds, time_of
from snapreplay.service.config.settings import Settings, effective
from snapreplay.service.control.draining import Draining
from snapreplay.service.control.kafka_reads import (
    DeadLetterList,
    KeyHistory,
    PartitionHistory,
    ReadKeyHistory,
    SavepointList,
    SavepointShown,
)
from snapreplay.service.control.operation_registry import OperationRegistry
from snapreplay.service.control.operations import (
    CancelOperation,
    Command,
    NotFailed,
    Operation,
    OperationState,
    PartitionsCommand,
    ProcessCommand,
    RetryPartition,
)
from snapreplay.service.control.protocol import Check, Control, ServiceFacts, StatusDocument
from snapreplay.service.control.state_reads import NotReadable, StateAnswer, StateRead
from snapreplay.service.control.status import (
    DigestProof,
    InputStatus,
    PartitionError,
    PartitionStatus,
    Progress,
    RecoveryStatus,
    SnapshotState,
    SnapshotStatus,
    SnapshotUsed,
    StoreStatus,
)
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.phase import Phase

T = TypeVar("T")
NO_CHANGES = KeyHistory(None, None, 0, is_whole=False, changes=(), partition_count=4)
NOW = time_of(1_795_000_000_000)


def ago(seconds: float) -> datetime:
    """Return the time this long before `NOW`."""
    return NOW - timedelta(seconds=seconds)


_ACCESS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.plain.username": "ada"}
SETTINGS = effective(Settings(kafka={**_ACCESS, "sasl.plain.password": "hunter2"}))
USED = SnapshotUsed("5c1d", batch=41, manifest_offset=90, entries=1000, size_bytes=4096, created_at=NOW)
WRITTEN = SnapshotStatus(
    partition=0,
    snapshot_id="77aa",
    state=SnapshotState.POINTED,
    reason="interval",
    batch=55,
    started_at=ago(60),
    finished_at=ago(59),
    entries=1200,
    chunks=2,
    size_bytes=5000,
    manifest_offset=120,
    digest="1200:00000000000000aa:00000000000000bb",
)
LIVE = PartitionStatus(
    partition=0,
    phase=Phase.LIVE,
    owner_epoch=130,
    batch=60,
    inputs=(InputStatus("payments", position=500, end_offset=520), InputStatus("rates", 7, 9)),
    state_entries=1200,
    state_bytes=50_000,
    state_largest_entry_bytes=700,
    stores=(StoreStatus("carts", 200, 20_000, 90, 1_000_500), StoreStatus("items", 1000, 30_000, 700)),
    records_total=480,
    skipped_total=2,
    digest="1200:00000000000000aa:00000000000000cc",
    restore=RecoveryStatus(
        attempts=1,
        started_at=ago(100),
        finished_at=ago(98.5),
        mode="changes",
        snapshot=USED,
        fallback_from="88bb",
        fallback_reason="chunk 1 at snapshots-0@95: crc32 differs",
        seconds_per_phase={"fencing": 0.02, "loading": 0.9},
        entries=1100,
        proof=DigestProof("1100:0a:0b", "1100:0a:0b", batches_compared=14),
    ),
    snapshot=WRITTEN,
    last_pointed_snapshot_at=ago(59),
    updated_at=ago(0.5),
)
LOADING = PartitionStatus(
    partition=1,
    phase=Phase.LOADING,
    owner_epoch=131,
    restore=RecoveryStatus(
        attempts=2,
        started_at=ago(2),
        snapshot=USED,
        progress=Progress("bytes", 0, 1024, 4096, rate_per_second=512.0, eta_seconds=6.0),
        seconds_per_phase={"fencing": 0.02},
    ),
    updated_at=ago(0.1),
)
FAILED = PartitionStatus(
    partition=2,
    phase=Phase.FAILED,
    error=PartitionError("RecordError", "handler failed", "deploy a fixed handler", "stop", "payments-2-7", ago(9)),
    updated_at=ago(9),
)
ASSIGNED = PartitionStatus(partition=3, phase=Phase.ASSIGNED, updated_at=NOW)
FACTS = ServiceFacts(
    app_id="ledger",
    app_version="7",
    version="0.1.0",
    instance_id="host-a",
    process_id="p1",
    host="host-a",
    started_at=ago(200),
    cluster_id="cluster-1",
    partition_count=6,
)


def alone(statuses: Sequence[PartitionStatus]) -> Covered:
    """Return what one process says that has these partitions, and knows of no other process."""
    return Covered(fleet(StatusDocument(FACTS, tuple(statuses)), (), 0.0), Scope.LOCAL)


class FakeControl:
    """Its operations are real ones; a test ends them."""

    def __init__(self, statuses: Sequence[PartitionStatus] = (LIVE, LOADING, FAILED, ASSIGNED)) -> None:
        self.statuses = {each.partition: each for each in statuses}
        self.service_facts = FACTS
        self.checks: list[Check] = [Check("loop", ok=True), Check("progress", ok=True, detail="0.1 s")]
        self.suspected: list[tuple[str, str]] = []
        self.silent: list[bool] = []
        self.histories: PartitionHistory | None = PartitionHistory(0, (), (), is_whole=True)
        self.key_histories: Callable[[ReadKeyHistory], KeyHistory] = lambda _: NO_CHANGES
        self.key_histories_asked: list[ReadKeyHistory] = []
        self.peers: tuple[Peer, ...] = ()
        self.reading: Callable[[StateRead], StateAnswer] | None = None
        self.reads: list[StateRead] = []
        self.kept: list[SavepointShown] = []
        self.letters = DeadLetterList(None)
        self._operations = OperationRegistry()
        self._draining = Draining(self._operations, frozenset)

    def document(self) -> StatusDocument:
        partitions = tuple(self.partitions())
        return StatusDocument(
            facts=msgspec.structs.replace(self.service_facts, drain=self._draining.status),
            partitions=partitions,
            standbys=(),
            snapshots=tuple(each.snapshot for each in partitions if each.snapshot),
            operations=tuple(self.operations()),
            live_checks=tuple(self.checks),
            ready_checks=tuple(Check(f"partition {p.partition}", p.phase is Phase.LIVE, p.phase) for p in partitions),
            made_at=boot_seconds(),
            settings=SETTINGS,
            peers=self.peers,
        )

    def perform(self, command: Command) -> Operation:
        match command:
            case RetryPartition(partition):
                status = self._owned(partition)
                if status.phase is not Phase.FAILED:
                    raise NotFailed(partition, status.phase)
                return self._operations.create(command, [partition])
            case PartitionsCommand():
                live = [each.partition for each in self.partitions() if each.phase is Phase.LIVE]
                return self._begun(command, live if command.numbers is None else command.numbers)
            case ProcessCommand():
                return self._draining.perform(command, FakeGroup(Share(peers=self.peers)), self.peers)
            case CancelOperation(operation_id):
                return self._operations.cancel(operation_id, f"cancelled by {command.by}")[0]
            case _:
                return self._operations.create(command, range(2))

    def suspect(self, process_id: str, why: str, silent_seconds: float | None = None) -> None:
        self.silent.append(silent_seconds is not None)
        self.suspected.append((process_id, why))

    async def savepoints(self) -> SavepointList:
        return SavepointList(tuple(self.kept))

    async def dead_letters(self) -> DeadLetterList:
        return self.letters

    async def key_history(self, read: ReadKeyHistory) -> KeyHistory:
        self.key_histories_asked.append(read)
        return self.key_histories(read)

    async def history(self, partition: int) -> PartitionHistory:
        if partition >= (self.service_facts.partition_count or 0):
            raise UnknownPartition(partition, self.service_facts.partition_count)
        if self.histories is None:
            raise NotReadable(partition, "unknown", "its log cannot be read: no broker")
        return self.histories

    def read(self, read: StateRead) -> StateAnswer:
        if self.reading is None:
            raise NotReadable(read.partition or 0, None, "another process owns it, or none does yet")
        self.reads.append(read)
        return self.reading(read)

    def partitions(self) -> Sequence[PartitionStatus]:
        return [self.statuses[number] for number in sorted(self.statuses)]

    def _begun(self, command: Command, partitions: Sequence[int]) -> Operation:
        for partition in partitions:
            status = self._owned(partition)
            if status.phase is not Phase.LIVE:
                raise PartitionNotLive(partition, f"it is {status.phase}, not live")
        return self._operations.create(command, partitions)

    def _owned(self, partition: int) -> PartitionStatus:
        count = self.service_facts.partition_count
        if count is None or partition >= count:
            raise UnknownPartition(partition, count)
        status = self.statuses.get(partition)
        if status is None:
            raise PartitionNotLive(partition, "another process owns it")
        return status

    def finish(self, operation: Operation, state: str) -> None:
        """End an operation, all its parts alike."""
        for part in operation.parts:
            self._operations.report(operation.id, part.partition, OperationState(state), "99cc", "")

    def operations(self) -> Sequence[Operation]:
        return self._operations.all()


class FakeGroup:
    """A group that gives this share."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.gives_away = False
        self.asked = 0

    def rejoin(self) -> None:
        self.asked += 1


class Local(Asking):
    """Asks `control` directly: handlers are tried without a thread of HTTP."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def look(self) -> StatusDocument:
        return self._control.document()

    async def perform(self, command: Command) -> Operation:
        return self._control.perform(command)

    async def read(self, read: StateRead, shown: Callable[[StateAnswer], T]) -> T:
        return shown(self._control.read(read))

    async def savepoints(self) -> SavepointList:
        return await self._control.savepoints()

    async def dead_letters(self) -> DeadLetterList:
        return await self._control.dead_letters()

    async def key_history(self, read: ReadKeyHistory, shown: Callable[[KeyHistory], T]) -> T:
        return shown(await self._control.key_history(read))

    async def history(self, partition: int) -> PartitionHistory:
        return await self._control.history(partition)

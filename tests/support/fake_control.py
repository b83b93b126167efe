"""`Control` in memory: a process with four partitions of six, each in another phase.

Nothing of Kafka is faked: the protocol asks for statuses and operations only, these are real.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service.clock import time_of
from snapreplay.service.control.protocol import (
    Busy,
    Check,
    NotFailed,
    Operation,
    OperationPart,
    OperationState,
    ServiceFacts,
)
from snapreplay.service.control.status import (
    DigestProof,
    InputStatus,
    PartitionError,
    PartitionStatus,
    Progress,
    Recovery,
    SnapshotState,
    SnapshotStatus,
    SnapshotUsed,
    StoreStatus,
)
from snapreplay.service.core.phase import Phase

NOW = time_of(1_795_000_000_000)


def ago(seconds: float) -> datetime:
    """Return the time this long before `NOW`."""
    return NOW - timedelta(seconds=seconds)


USED = SnapshotUsed(
    "5c1d", batch=41, manifest_offset=90, entries=1000, size_bytes=4096, created_at=NOW
)
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
    stores=(
        StoreStatus("carts", 200, 20_000, 90, 1_000_500),
        StoreStatus("items", 1000, 30_000, 700),
    ),
    records_total=480,
    skipped_total=2,
    digest="1200:00000000000000aa:00000000000000cc",
    restore=Recovery(
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
    restore=Recovery(
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
    error=PartitionError(
        "RecordError", "handler failed", "deploy a fixed handler", "stop", "payments-2-7", ago(9)
    ),
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


class FakeControl:
    """Thread-safe. `running` holds the partitions with a snapshot in progress."""

    def __init__(
        self,
        statuses: Sequence[PartitionStatus] = (LIVE, LOADING, FAILED, ASSIGNED),
        facts: ServiceFacts = FACTS,
    ) -> None:
        self._lock = threading.Lock()
        self.statuses = {each.partition: each for each in statuses}
        self.service_facts = facts
        self.running: dict[int, str] = {}
        self.checks: list[Check] = [
            Check("loop", ok=True),
            Check("progress", ok=True, detail="0.1 s"),
        ]
        self._operations: dict[str, Operation] = {}

    def facts(self) -> ServiceFacts:
        return self.service_facts

    def partitions(self) -> Sequence[PartitionStatus]:
        return [self.statuses[number] for number in sorted(self.statuses)]

    def snapshots(self) -> Sequence[SnapshotStatus]:
        return [each.snapshot for each in self.partitions() if each.snapshot]

    def trigger_snapshot(self, partitions: Sequence[int] | None, reason: str) -> Operation:
        with self._lock:
            wanted = self._live() if partitions is None else list(partitions)
            for partition in wanted:
                self._check(partition)
            return self._create("snapshot", reason, wanted)

    def adopt(self, partition: int, manifest_offset: int) -> Operation:
        with self._lock:
            self._check(partition, "adopt")
            return self._create("adopt", f"manifest at offset {manifest_offset}", [partition])

    def retry(self, partition: int) -> Operation:
        with self._lock:
            status = self._owned(partition)
            if status.phase is not Phase.FAILED:
                raise NotFailed(partition, status.phase)
            if partition in self.running:
                raise Busy(partition, self.running[partition], "retry")
            return self._create("retry", "", [partition])

    def _create(self, kind: str, reason: str, partitions: Sequence[int]) -> Operation:
        operation = Operation(
            id=f"op-{len(self._operations):04}",
            kind=kind,
            state=OperationState.RUNNING,
            reason=reason,
            parts=tuple(
                OperationPart(partition, OperationState.PENDING) for partition in partitions
            ),
            created_at=NOW,
        )
        self._operations[operation.id] = operation
        return operation

    def _live(self) -> list[int]:
        return [each.partition for each in self.partitions() if each.phase is Phase.LIVE]

    def _owned(self, partition: int) -> PartitionStatus:
        count = self.service_facts.partition_count
        if count is None or partition >= count:
            raise UnknownPartition(partition, count)
        status = self.statuses.get(partition)
        if status is None:
            raise PartitionNotLive(partition, "another process owns it")
        return status

    def _check(self, partition: int, kind: str = "snapshot") -> None:
        status = self._owned(partition)
        if status.phase is not Phase.LIVE:
            raise PartitionNotLive(partition, f"it is {status.phase}, not live")
        if partition in self.running:
            raise Busy(partition, self.running[partition], kind)

    def finish(self, operation_id: str, state: str) -> None:
        """End an operation, all its parts alike."""
        with self._lock:
            operation = self._operations[operation_id]
            self._operations[operation_id] = msgspec.structs.replace(
                operation,
                state=state,
                finished_at=ago(-1),
                parts=tuple(
                    msgspec.structs.replace(part, state=state, snapshot_id="99cc")
                    for part in operation.parts
                ),
            )

    def operation(self, operation_id: str) -> Operation | None:
        return self._operations.get(operation_id)

    def operations(self) -> Sequence[Operation]:
        return list(reversed(self._operations.values()))

    def live_checks(self) -> Sequence[Check]:
        return self.checks

    def ready_checks(self) -> Sequence[Check]:
        return [
            Check(f"partition {each.partition}", each.phase is Phase.LIVE, each.phase)
            for each in self.partitions()
        ]

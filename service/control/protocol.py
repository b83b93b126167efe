"""What HTTP and the command line may ask of a running service. Thread-safe by contract: callers live in the
HTTP thread, the service in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from snapreplay.errors import RetryableError, UsageError
from snapreplay.service.control.status import PartitionStatus, SnapshotStatus


class OperationState(StrEnum):
    """State of an operation or of one of its parts. Only parts can be SKIPPED: there was nothing to do."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    FAILED = "failed"


class OperationPart(msgspec.Struct, frozen=True):
    """One partition's share of an operation."""

    partition: int
    state: OperationState
    snapshot_id: str | None = None
    detail: str = ""


class Operation(msgspec.Struct, frozen=True):
    """An asynchronous request and its result. `id` sorts by time of creation."""

    id: str
    kind: str  # "snapshot", "retry", "adopt"
    state: OperationState
    reason: str
    parts: tuple[OperationPart, ...]
    created_at: float
    finished_at: float | None = None


OnDone = Callable[[OperationState, str | None, str], None]
"""Called with (state, snapshot id, detail) when a part of an operation has ended."""


class ServiceFacts(msgspec.Struct, frozen=True):
    """Who this process is. `partition_count` is None until the cluster was reached once."""

    app_id: str
    app_version: str
    version: str
    instance_id: str
    process_id: str
    host: str
    started_at: float
    cluster_id: str | None = None
    partition_count: int | None = None
    waiting_for: str = ""  # what keeps it from joining its group, with the command; empty: nothing


class Check(msgspec.Struct, frozen=True):
    """One line of a probe's answer."""

    name: str
    ok: bool
    detail: str = ""


class NotFailed(UsageError):
    """There is nothing to retry: the partition is in another phase."""

    def __init__(self, partition: int, phase: str) -> None:
        super().__init__(f"partition {partition} is {phase}: there is nothing to retry")
        self.partition = partition
        self.phase = phase


class Busy(RetryableError):
    """An operation of this kind is already running on that partition."""

    def __init__(self, partition: int, operation_id: str | None, kind: str = "snapshot") -> None:
        super().__init__(f"a {kind} of partition {partition} is already running")
        self.partition = partition
        self.operation_id = operation_id
        self.kind = kind


class Control(Protocol):
    """Every method returns at once and may be called from any thread."""

    def facts(self) -> ServiceFacts: ...

    def partitions(self) -> Sequence[PartitionStatus]:
        """Owned or lately owned ones, ordered by number; empty before the first assignment."""

    def snapshots(self) -> Sequence[SnapshotStatus]:
        """Full snapshots this process wrote or used, newest first, at most 500."""

    def trigger_snapshot(self, partitions: Sequence[int] | None, reason: str) -> Operation:
        """Ask for a full snapshot of these owned partitions (None: of all that are LIVE).

        Raises:
            UnknownPartition, PartitionNotLive, Busy: nothing was started.
        """

    def adopt(self, partition: int, manifest_offset: int) -> Operation:
        """Let the owner judge the snapshot that a job proposes with this manifest. The operation ends when an increment
        points to it, or with the reason why it is rejected.

        Raises:
            UnknownPartition, PartitionNotLive, Busy: nothing was started.
        """

    def retry(self, partition: int) -> Operation:
        """Let a FAILED partition recover again, with the cluster as it is now; the others of this process run on. The
        operation ends when the partition is LIVE and has committed a batch (or had no input for a second), or when it
        is FAILED again.

        Raises:
            UnknownPartition, PartitionNotLive, NotFailed, Busy: nothing was started.
        """

    def operation(self, operation_id: str) -> Operation | None:
        """None when unknown or evicted (the last 1,000 are kept)."""

    def operations(self) -> Sequence[Operation]:
        """Newest first."""

    def live_checks(self) -> Sequence[Check]:
        """Whether the process should be killed: does the runners' loop turn? A restore or FAILED is no reason."""

    def ready_checks(self) -> Sequence[Check]:
        """Ready = member of the group and every assigned partition LIVE. Also ready without a partition."""


class Http(Protocol):
    """Serves `Control` over HTTP in the loop it is called in. `snapreplay.api.server.HttpServer` is one."""

    async def serve(self, control: Control, host: str, port: int) -> tuple[str, int]:
        """Begin to listen; returns the address bound to."""

    async def close(self) -> None: ...

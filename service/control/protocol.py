"""The interface of a running service for HTTP and the command line. Thread-safe by contract: callers live in other
threads than the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Protocol

import msgspec

from snapreplay.errors import RetryableError, UsageError
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.control.fields import Count, Time, one_of, said
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

    partition: Count
    state: Annotated[str, one_of(*OperationState)]
    snapshot_id: str | None = None
    detail: str = ""


class Operation(msgspec.Struct, frozen=True):
    """An asynchronous request and its result."""

    id: Annotated[str, said("Sorts by time of creation.")]
    kind: Annotated[str, one_of("snapshot", "retry", "adopt")]
    state: Annotated[str, one_of("running", "succeeded", "failed")]
    reason: str
    parts: tuple[OperationPart, ...]
    created_at: Time
    finished_at: Time | None = None


OnDone = Callable[[OperationState, str | None, str], None]
"""Called with (state, snapshot id, detail) when a part of an operation has ended."""


class ServiceFacts(msgspec.Struct, frozen=True):
    """The identity of this process; the cluster's facts are null until it was reached once."""

    app_id: str
    app_version: str
    version: str
    instance_id: str
    process_id: str
    host: str
    started_at: Time
    cluster_id: str | None = None
    partition_count: Count | None = None
    waiting_for: Annotated[
        str, said("What a new app waits for before it begins, with the command; or empty.")
    ] = ""


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
        """List owned or lately owned ones, ordered by number; empty before the first assignment."""

    def snapshots(self) -> Sequence[SnapshotStatus]:
        """List full snapshots this process wrote or used, newest first, at most 500."""

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
        """Find an operation; None when unknown or evicted (the last 1,000 are kept)."""

    def operations(self) -> Sequence[Operation]:
        """List operations, newest first."""

    def live_checks(self) -> Sequence[Check]:
        """Say whether the process should be killed: does the runners' loop turn? A restore or FAILED is no reason."""

    def ready_checks(self) -> Sequence[Check]:
        """Check readiness: a member of the group, and every assigned partition LIVE. Also ready without a
        partition."""


class Silent(RetryableError):
    """The process does not answer: it is frozen, or a handler keeps the interpreter to itself."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the service process has not answered for {seconds:.0f} s",
            hint="it is frozen, or a handler keeps Python's interpreter to itself; GET /healthz says when to kill it",
        )


class TooManyCommands(RetryableError):
    """A refusal because as many commands as may wait are waiting already."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} requests wait for the service process already")


class Http(Protocol):
    """Serves `Control` over HTTP, without the loop it is called in. `snapreplay.api.server.HttpServer` is one."""

    async def serve(self, control: Control, settings: HttpSettings) -> tuple[str, int]:
        """Begin to listen; returns the address bound to."""

    async def close(self, within_seconds: float) -> None:
        """End, also if a request is unfinished by then."""

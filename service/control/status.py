"""What each partition is doing, published by its runner, read by HTTP in another thread.

Statuses are immutable and the board swaps whole ones, so a reader never sees half a change and takes no lock that a
busy runner could hold. Times are Unix seconds (float), durations seconds, sizes bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum

import msgspec

from snapreplay.service.core.phase import Phase


class Progress(msgspec.Struct, frozen=True):
    """Progress of the present phase of a recovery. `unit` is "bytes" while loading, "records" while
    advancing (input offsets covered: an upper bound of the records)."""

    unit: str
    from_: int = msgspec.field(name="from", default=0)
    current: int = 0
    target: int = 0
    rate_per_second: float | None = None
    eta_seconds: float | None = None

    @property
    def remaining(self) -> int:
        return max(0, self.target - self.current)

    @property
    def percent(self) -> float:
        """0 to 100; 100 when there is nothing to do."""
        span = self.target - self.from_
        if span <= 0:
            return 100.0
        return min(100.0, max(0.0, 100.0 * (self.current - self.from_) / span))


class SnapshotUsed(msgspec.Struct, frozen=True):
    """The full snapshot a recovery started from; absent when it started from genesis."""

    snapshot_id: str
    batch: int
    manifest_offset: int
    entries: int
    size_bytes: int
    created_at: float
    chunks: int = 0


class DigestProof(msgspec.Struct, frozen=True):
    """The comparison that ends a recovery: recorded by the last increment, computed by us."""

    recorded: str
    computed: str
    batches_compared: int

    @property
    def equal(self) -> bool:
        return self.recorded == self.computed


class Problem(msgspec.Struct, frozen=True):
    """An error as shown to people. `kind` is the class name, `reaction` what was done about it."""

    kind: str
    message: str
    hint: str
    reaction: str
    record_id: str = ""
    at: float = 0.0


class RestoreStatus(msgspec.Struct, frozen=True):
    """One recovery of one partition, running or finished."""

    attempt: int
    started_at: float
    finished_at: float | None = None
    # "changes", "replay"; None until it is chosen, or when there was nothing to do.
    mode: str | None = None
    snapshot: SnapshotUsed | None = None
    fallback_from: str | None = None  # id of a newer snapshot that could not be used
    fallback_reason: str | None = None  # why not that one, and why not by the preferred mode
    progress: Progress | None = None
    seconds_per_phase: dict[str, float] = {}
    entries: int = 0  # entries of state so far
    records_replayed: int = 0
    proof: DigestProof | None = None
    waiting_for: str = ""  # what the present phase is waiting for; empty: nothing
    # What became of the batch in doubt, "merged" or "dropped", or "kept" when there was none: the state was still in
    # memory. None: it was restored.
    warm: str | None = None


class SnapshotState(StrEnum):
    """How far a full snapshot has come; it exists when it is POINTED to."""

    WRITING = "writing"
    WRITTEN = "written"
    POINTED = "pointed"
    FAILED = "failed"


class SnapshotStatus(msgspec.Struct, frozen=True):
    """A full snapshot of a partition: being written, written but not pointed to, pointed to, or failed."""

    partition: int
    snapshot_id: str
    state: SnapshotState
    reason: str  # "records", "interval", "trigger", "shutdown", "failed_partition", "fallback", "retention", "restored"
    # "adopted" (a job wrote it), "safety_net" (no job did in time)
    batch: int
    started_at: float
    finished_at: float | None = None
    entries: int = 0
    chunks: int = 0
    size_bytes: int = 0
    manifest_offset: int | None = None
    digest: str | None = None
    error: str | None = None


class InputStatus(msgspec.Struct, frozen=True):
    """One input topic's side of a partition. `end_offset` is None before the first fetch."""

    topic: str
    position: int
    end_offset: int | None = None

    @property
    def lag(self) -> int | None:
        """Upper bound of the records left: markers and compaction make it larger."""
        return None if self.end_offset is None else max(0, self.end_offset - self.position)


class StoreStatus(msgspec.Struct, frozen=True):
    """One store of the state; a state that is no map is one store."""

    name: str
    entries: int
    size_bytes: int
    largest_entry_bytes: int = 0  # of those that were loaded from a snapshot or committed since
    next_due_ms: int | None = None  # stream time: of its timers, or of an entry that expires


class ValuesRead(msgspec.Struct, frozen=True):
    """How many of the restored entries were read as the app's types; `all_read` at the end."""

    read: int
    entries: int
    all_read: bool


class BlockedTopic(msgspec.Struct, frozen=True):
    """An input, or the increments topic, that can be read only so far because a transaction stays open: `offsets` lie
    between the last stable offset and the high watermark. Checked once a minute, shown from the second time on."""

    topic: str
    last_stable_offset: int
    offsets: int


class Decision(msgspec.Struct, frozen=True):
    """A finding that an operator accepted; `offset` is that of its increment in the increments topic."""

    offset: int
    batch: int
    finding: str  # its id
    problem: str  # the error
    decided: str  # what was done about it
    reason: str  # in the operator's words
    by: str  # user@host
    at: float


class RejectedProposal(msgspec.Struct, frozen=True):
    """A snapshot that a job proposed and the owner did not adopt. `reason` is a word of a fixed set."""

    manifest_offset: int
    reason: str
    detail: str
    at: float


AUDIT_LEVELS = ("integrity", "changes", "replay")


class AuditProof(msgspec.Struct, frozen=True):
    """What `snapreplay audit --since-last` recorded: everything up to and with this batch was audited, without a
    finding. `offset` is that of the batch's increment."""

    level: str  # "integrity", "changes", "replay": each includes the one before
    batch: int
    offset: int
    digest: str | None
    snapshot_id: str | None
    app_version: str
    at: float


class PartitionStatus(msgspec.Struct, frozen=True):
    """Everything HTTP shows of one owned partition."""

    partition: int
    phase: Phase
    owner_epoch: int | None = None
    batch: int | None = None
    inputs: tuple[InputStatus, ...] = ()
    state_entries: int = 0
    state_bytes: int = 0
    state_largest_entry_bytes: int = 0  # over all stores
    stores: tuple[StoreStatus, ...] = ()  # by name; empty before LIVE
    records_total: int = 0  # applied since this process owns the partition, replay not counted
    skipped_total: int = 0
    stream_time_ms: int | None = None  # None before the first record
    timers_pending: int = 0
    next_due_ms: int | None = None  # stream time, the earliest of all stores
    timers_total: int = 0  # fired since this process owns the partition, replay not counted
    expired_total: int = 0  # entries, as `timers_total`
    digest: str | None = None
    values_read: ValuesRead | None = None  # None before LIVE, and where the state is no map
    restore: RestoreStatus | None = None
    snapshot: SnapshotStatus | None = None  # the newest one, whatever its state
    last_pointed_snapshot_at: float | None = None
    # Whether a recovery now would find all it needs; None unless LIVE and looked at, about once a minute.
    recoverable: bool | None = None
    unrecoverable_reason: str = ""
    blocked_by_open_transaction: tuple[BlockedTopic, ...] = ()
    # Why a LIVE partition may not be ours any more: the process stood still, or processing has ended. Else empty.
    ownership_doubt: str = ""
    decisions: tuple[
        Decision, ...
    ] = ()  # newest first, as far as the increments topic reaches back
    rejected_proposals: tuple[RejectedProposal, ...] = ()  # newest first, at most 16
    # At most one of each level, the furthest first; None: not known (not LIVE, not looked yet, or no answer).
    audited: tuple[AuditProof, ...] | None = None
    error: Problem | None = None
    updated_at: float = 0.0  # last progress; HTTP derives the progress age

    @property
    def restored_percent(self) -> float | None:
        """How far towards LIVE, 0 to 100, never falling within an attempt; None when failed, fenced, suspended or
        closed.

        Coarse on purpose: LOADING is the first half, ADVANCING the second, whatever their sizes.
        """
        progress = self.restore.progress if self.restore else None
        step_percent = progress.percent if progress else 0.0
        match self.phase:
            case Phase.LIVE:
                return 100.0
            case Phase.LOADING:
                return step_percent / 2
            case Phase.ADVANCING:
                return 50.0 + step_percent / 2
            case Phase.ASSIGNED | Phase.FENCING | Phase.CLAIMING | Phase.LOCATING:
                return 0.0
            case _:
                return None

    def audited_at(self, level: str) -> AuditProof | None:
        """The furthest proof at this level or a higher one."""
        levels = AUDIT_LEVELS[AUDIT_LEVELS.index(level) :]
        return next((each for each in self.audited or () if each.level in levels), None)

    @property
    def unaudited_batches(self) -> int | None:
        """Committed after the furthest proof, the genesis included; None: not known."""
        if self.audited is None or self.batch is None:
            return None
        furthest = max((each.batch for each in self.audited), default=-1)
        return max(0, self.batch - furthest)

    @property
    def proof(self) -> DigestProof | None:
        """The proof of the present state. A partition that has left LIVE has none."""
        restore = self.restore
        if restore is None or (restore.finished_at is not None and self.phase is not Phase.LIVE):
            return None
        return restore.proof


class StatusBoard:
    """The newest status of every partition this process owns or owned. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[int, PartitionStatus] = {}
        self._listeners: list[Callable[[PartitionStatus], None]] = []

    def publish(self, status: PartitionStatus) -> None:
        """Called by the partition's runner only."""
        with self._lock:
            self._partitions[status.partition] = status
        for listener in self._listeners:
            listener(status)

    def forget(self, partition: int) -> None:
        with self._lock:
            self._partitions.pop(partition, None)

    def get(self, partition: int) -> PartitionStatus | None:
        return self._partitions.get(partition)

    def all(self) -> list[PartitionStatus]:
        """Ordered by partition; empty before the first assignment."""
        with self._lock:
            return [self._partitions[p] for p in sorted(self._partitions)]

    def subscribe(self, listener: Callable[[PartitionStatus], None]) -> None:
        """`listener` runs in the publisher's thread at every change and must be quick."""
        self._listeners.append(listener)

"""The status of each partition, published by its runner, read by HTTP in another thread.

These classes are the one vocabulary of a status: runners fill them, HTTP shows them as JSON, and OpenAPI has their
descriptions. Statuses are immutable and the board swaps whole ones, so a reader never sees half a change and takes no
lock that a busy runner could hold. Times are aware datetimes in UTC, RFC 3339 in JSON; durations are seconds, sizes
bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec.structs import force_setattr

from snapreplay.service.control.restore_plan import Drill, Forecast, RestoreObjective, RestorePlan
from snapreplay.service.control.vocabulary import LONG_AGO, Count, Percent, Seconds, Time, one_of, said
from snapreplay.service.core.adoption import Reason
from snapreplay.service.core.phase import CopyState, Phase


class InputStatus(msgspec.Struct, frozen=True):
    """One input topic of a partition, with both lags, in offsets: an upper bound of the records left, because markers
    and compaction make it larger. What is null is not known before the first fetch."""

    topic: str
    position: Annotated[Count, said("All records before it are processed.")]
    end_offset: Annotated[Count | None, said("The last stable offset: what can be read ends here.")] = None
    high_watermark: Annotated[
        Count | None, said("The end of the log; beyond `end_offset` while a transaction is open.")
    ] = None
    lag: Annotated[Count | None, said("To the last stable offset.")] = None  # derived
    lag_to_high_watermark: Count | None = None  # derived
    handled_total: Annotated[Count, said("Records that handlers took, counted as `records_total`.")] = 0
    handler_seconds_total: Annotated[Seconds, said("The time they took for it, waits for another thread included.")] = (
        0.0
    )

    def __post_init__(self) -> None:
        force_setattr(self, "lag", self._lag_to(self.end_offset))
        force_setattr(self, "lag_to_high_watermark", self._lag_to(self.high_watermark))

    def _lag_to(self, end: int | None) -> int | None:
        return None if end is None else max(0, end - self.position)


class OpenTransactionStatus(msgspec.Struct, frozen=True):
    """The open transaction that holds back a last stable offset, as the brokers describe it. What is null is not
    known: no coordinator that may be asked has this transaction."""

    producer_id: Count
    producer_epoch: Count
    start_offset: Annotated[Count, said("Of its first record in this partition.")]
    transactional_id: str | None = None
    started_at: Time | None = None
    timeout_seconds: Annotated[Seconds | None, said("Time after its start at which the coordinator aborts it.")] = None
    last_record_at: Annotated[Time | None, said("The newest timestamp of its producer's records here.")] = None


class BlockedTopic(msgspec.Struct, frozen=True):
    """A topic held back by an open transaction: `offsets` is the distance from the last stable offset to the high
    watermark. `held_by` is null if the brokers could not say."""

    topic: str
    last_stable_offset: Count
    offsets: Count
    held_by: OpenTransactionStatus | None = None


class CommitTimes(msgspec.Struct, frozen=True):
    """The commits since this process owns the partition, each from its first send to the broker's answer."""

    total: Count = 0
    seconds_total: Seconds = 0.0
    longest_seconds: Annotated[Seconds, said("Of the 10 to 20 seconds up to the last commit.")] = 0.0


NO_COMMITS = CommitTimes()


class Progress(msgspec.Struct, frozen=True):
    """Progress of the present phase of a recovery: bytes while loading, records while advancing (input offsets
    covered, an upper bound of the records). `eta_seconds` is null while the rate is not known."""

    unit: Annotated[str, one_of("bytes", "records")]
    from_: Count = msgspec.field(name="from", default=0)
    current: Count = 0
    target: Count = 0
    rate_per_second: Seconds | None = None
    eta_seconds: Seconds | None = None
    remaining: Count = 0  # derived
    percent: Percent = 100.0  # derived; 100 when there is nothing to do

    def __post_init__(self) -> None:
        span, covered = self.target - self.from_, self.current - self.from_
        percent = min(100.0, max(0.0, 100.0 * covered / span)) if span > 0 else 100.0
        force_setattr(self, "remaining", max(0, self.target - self.current))
        force_setattr(self, "percent", percent)


class SnapshotUsed(msgspec.Struct, frozen=True):
    """The full snapshot a recovery started from."""

    snapshot_id: str
    batch: Count
    manifest_offset: Count
    entries: Count
    size_bytes: Count
    created_at: Time
    chunks: Count = 0


class DigestProof(msgspec.Struct, frozen=True):
    """The digest that the last increment recorded, and the one computed from what was restored."""

    recorded: str
    computed: str
    batches_compared: Count
    equal: bool = False  # derived

    def __post_init__(self) -> None:
        force_setattr(self, "equal", self.recorded == self.computed)


class PartitionError(msgspec.Struct, frozen=True):
    """An error and what to do about it; `hint` has the command to run, if there is one."""

    kind: str  # the name of its class
    message: str
    hint: str
    reaction: Annotated[str, one_of("retry", "rebuild", "release", "stop", "handler_policy", "refuse")]
    record_id: str
    at: Time


class RecoveryStatus(msgspec.Struct, frozen=True):
    """One recovery of one partition, running or finished. What is null is not known (yet)."""

    attempts: Annotated[Count, said("0 before the first attempt.")] = 0
    started_at: Time | None = None
    finished_at: Time | None = None
    warm: Annotated[
        str | None,
        said(
            "What became of the batch in doubt, if the state was in memory; kept: there was none; copied: from a"
            " standby. Null: the state was restored.",
            enum=["merged", "dropped", "kept", "copied", None],
        ),
    ] = None
    mode: Annotated[str | None, said("Null: not chosen, or nothing to do.", enum=["changes", "replay", None])] = None
    snapshot: Annotated[SnapshotUsed | None, said("Null: it started from the genesis, or from memory.")] = None
    fallback_from: Annotated[str | None, said("The newest snapshot, when it could not be used.")] = None
    fallback_reason: Annotated[str | None, said("Why the newest snapshot or the preferred mode was not used.")] = None
    progress: Progress | None = None
    waiting_for: Annotated[str, said("What the present phase is waiting for; empty: nothing.")] = ""
    seconds_per_phase: dict[str, Seconds] = {}
    entries: Annotated[Count, said("Entries of state so far.")] = 0
    records_replayed: Count = 0
    records_advanced: Annotated[Count, said("Input offsets that were brought forward, by either mode.")] = 0
    predicted_seconds: Annotated[
        Seconds | None, said("By the rates known before it. Null: not ended, from memory, or several attempts.")
    ] = None
    proof: Annotated[DigestProof | None, said("The comparison that ends a recovery.")] = None
    forecast: Annotated[Forecast | None, said("Null: from memory, or not known yet. It stays after the end.")] = None


class SnapshotState(StrEnum):
    """The progress of a full snapshot; it exists when it is POINTED to."""

    WRITING = "writing"
    WRITTEN = "written"
    POINTED = "pointed"
    FAILED = "failed"


class SnapshotStatus(msgspec.Struct, frozen=True):
    """A full snapshot of a partition; a recovery can use it once `state` is `pointed`."""

    partition: Count
    snapshot_id: str
    state: Annotated[str, one_of(*SnapshotState)]
    reason: Annotated[
        str,
        said(
            "records, interval, objective, trigger, shutdown, failed_partition, fallback, retention, restored; adopted:"
            " a job wrote it"
        ),
    ]
    batch: Count
    started_at: Time
    finished_at: Time | None = None
    entries: Count = 0
    chunks: Count = 0
    size_bytes: Count = 0
    manifest_offset: Count | None = None
    digest: str | None = None
    error: str | None = None

    @classmethod
    def restored(cls, partition: int, used: SnapshotUsed) -> SnapshotStatus:
        """Return the snapshot that a LIVE partition was restored from. Only its writer knew why it was written."""
        return cls(
            *(partition, used.snapshot_id, SnapshotState.POINTED, "restored", used.batch),
            started_at=used.created_at,
            finished_at=used.created_at,
            entries=used.entries,
            chunks=used.chunks,
            size_bytes=used.size_bytes,
            manifest_offset=used.manifest_offset,
        )


class StoreStatus(msgspec.Struct, frozen=True):
    """A store of the state: `default` if it has no named stores, `_timers` and `_periods` for pending timers."""

    name: str
    entries: Count
    size_bytes: Count
    largest_entry_bytes: Annotated[Count, said("Of those loaded from a snapshot or committed; at most 800,000.")] = 0
    next_due_ms: Annotated[
        Count | None, said("Stream time of its next timer or expiry, at most 1 s too early; null: none.")
    ] = None


class Decision(msgspec.Struct, frozen=True):
    """A finding that an operator accepted; `offset` is that of its increment."""

    offset: Count
    batch: Count
    finding: Annotated[str, said("The id by which it was accepted.")]
    problem: str
    decided: str
    reason: str
    by: Annotated[str, said(examples=["ada@host-a"])]
    at: Time


class RejectedProposal(msgspec.Struct, frozen=True):
    """A snapshot that a job proposed and the owner did not adopt."""

    manifest_offset: Count
    reason: Annotated[str, one_of(*Reason)]
    detail: str
    at: Time


class CallStatus(msgspec.Struct, frozen=True):
    """The calls to the outside of one name, in one partition."""

    name: str
    pending: Annotated[Count, said("Requested, and their answers are not handled yet.")]
    failures: Annotated[Count, said("Attempts of this process that failed in a row.")] = 0
    circuit_open: Annotated[bool, said("After 10 failures in a row: one call at a time, until one succeeds.")] = False
    last_error: Annotated[str, said("Of the last attempt; empty if it succeeded.")] = ""
    oldest_at: Annotated[Time | None, said("Of the record or timer that requested the oldest pending one.")] = None


class PartitionStatus(msgspec.Struct, frozen=True):
    """A partition that this process owns, or recently owned (`phase` is then `closed`)."""

    partition: Count
    phase: Phase
    owner_epoch: Count | None = None
    batch: Count | None = None
    inputs: tuple[InputStatus, ...] = ()
    state_entries: Count = 0
    state_bytes: Count = 0
    state_largest_entry_bytes: Annotated[Count, said("Of all stores.")] = 0
    stores: Annotated[tuple[StoreStatus, ...], said("By name; empty before it is live.")] = ()
    records_total: Annotated[Count, said("Applied since this process owns the partition, replay not counted.")] = 0
    skipped_total: Count = 0
    outputs_total: Annotated[Count, said("Records that handlers sent, counted as `records_total`.")] = 0
    apply_seconds_total: Annotated[Seconds, said("In handlers and encoding, counted as `records_total`.")] = 0.0
    commits: CommitTimes = CommitTimes()
    stream_time_ms: Annotated[Count | None, said("Null before the first record.")] = None
    timers_pending: Annotated[Count, said("Timers of keys that are set.")] = 0
    calls: Annotated[tuple[CallStatus, ...], said("By name; empty unless the app has calls, and it is live.")] = ()
    next_due_ms: Annotated[Count | None, said("Stream time of the next timer or expiry of any store; null: none.")] = (
        None
    )
    timers_total: Annotated[Count, said("Fired, counted as `records_total`.")] = 0
    expired_total: Annotated[Count, said("Entries, counted as `records_total`.")] = 0
    digest: str | None = None
    paused_since: Annotated[Time | None, said("Nothing is processed since then; null: it is not paused.")] = None
    paused_reason: str = ""
    restore: Annotated[RecoveryStatus | None, said("The running or last recovery; null before the first.")] = None
    snapshot: Annotated[SnapshotStatus | None, said("The newest, in any state.")] = None
    last_pointed_snapshot_at: Time | None = None
    recoverable: Annotated[bool | None, said("Whether a recovery would succeed now; checked once a minute.")] = None
    unrecoverable_reason: Annotated[str, said("Empty unless `recoverable` is false.")] = ""
    blocked_by_open_transaction: Annotated[
        tuple[BlockedTopic, ...], said("Inputs, or the increments topic, held back for a minute.")
    ] = ()
    ownership_doubt: Annotated[str, said("Why another process may own it by now; empty: no doubt.")] = ""
    decisions: Annotated[tuple[Decision, ...], said("Newest first, as far as the log reaches; at most 100.")] = ()
    rejected_proposals: Annotated[tuple[RejectedProposal, ...], said("Newest first, at most 16.")] = ()
    restore_plan: Annotated[RestorePlan | None, said("As of the last minute; null unless live.")] = None
    objective: Annotated[RestoreObjective | None, said("Null unless live and `restore.objective_seconds` is set.")] = (
        None
    )
    drill: Annotated[Drill | None, said("The last one of this process.")] = None
    error: PartitionError | None = None
    updated_at: Annotated[Time, said("The last progress.")] = LONG_AGO

    @property
    def restored_percent(self) -> float | None:
        """The progress towards LIVE, 0 to 100, never falling within an attempt; None when failed, fenced or closed.

        Coarse on purpose: LOADING is the first half, ADVANCING the second, regardless of their sizes.
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

    @property
    def proof(self) -> DigestProof | None:
        """The proof of the present state. A partition that has left LIVE has none."""
        restore = self.restore
        if restore is None or (restore.finished_at is not None and self.phase is not Phase.LIVE):
            return None
        return restore.proof


class StandbyStatus(msgspec.Struct, frozen=True):
    """A warm copy of a partition that another process owns. What is null is not known (yet)."""

    partition: Count
    state: Annotated[str, one_of(*CopyState)] = CopyState.LOADING
    batch: Annotated[Count | None, said("The last batch that was applied, its digest compared.")] = None
    lag_offsets: Annotated[Count, said("Offsets of the increments topic behind it, when it last looked.")] = 0
    entries: Count = 0
    digest: str | None = None
    digests_compared: Annotated[Count, said("Digests of the owner that matched since it was loaded.")] = 0
    error: Annotated[PartitionError | None, said("Why it starts over, or cannot follow.")] = None
    updated_at: Annotated[Time, said("When it last looked at the log.")] = LONG_AGO


class StatusBoard:
    """The newest status of every partition this process owns or owned, and of its warm copies. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[int, PartitionStatus] = {}
        self._listeners: list[Callable[[PartitionStatus], None]] = []
        self._standbys: dict[int, StandbyStatus] = {}

    def publish(self, status: PartitionStatus) -> None:
        """Publish a status; only the partition's runner calls it."""
        with self._lock:
            self._partitions[status.partition] = status
        for listener in self._listeners:
            listener(status)

    def forget(self, partition: int) -> None:
        with self._lock:
            self._partitions.pop(partition, None)

    def publish_standby(self, partition: int, status: StandbyStatus | None) -> None:
        """Publish the status of a warm copy; None: there is none any more."""
        with self._lock:
            if status is None:
                self._standbys.pop(partition, None)
            else:
                self._standbys[partition] = status

    def standbys(self) -> list[StandbyStatus]:
        with self._lock:
            return [self._standbys[p] for p in sorted(self._standbys)]

    def get(self, partition: int) -> PartitionStatus | None:
        return self._partitions.get(partition)

    def all(self) -> list[PartitionStatus]:
        """List all statuses, ordered by partition; empty before the first assignment."""
        with self._lock:
            return [self._partitions[p] for p in sorted(self._partitions)]

    def subscribe(self, listener: Callable[[PartitionStatus], None]) -> None:
        """Call `listener` in the publisher's thread at every change; it must be quick."""
        self._listeners.append(listener)


SNAPSHOTS_KEPT = 500


class SnapshotsSeen:
    """Keeps the newest `SNAPSHOTS_KEPT`, each by its id."""

    def __init__(self) -> None:
        self._snapshots: dict[str, SnapshotStatus] = {}

    def all(self) -> Sequence[SnapshotStatus]:
        """List them, newest first. Any thread: nothing comes between the steps of `list`."""
        return list(self._snapshots.values())[::-1]

    def add(self, status: PartitionStatus) -> None:
        used = status.restore.snapshot if status.restore and status.phase is Phase.LIVE else None
        if used is not None and used.snapshot_id not in self._snapshots:
            self._snapshots[used.snapshot_id] = SnapshotStatus.restored(status.partition, used)
        if status.snapshot is not None:
            self._snapshots[status.snapshot.snapshot_id] = status.snapshot
        while len(self._snapshots) > SNAPSHOTS_KEPT:
            del self._snapshots[next(iter(self._snapshots))]

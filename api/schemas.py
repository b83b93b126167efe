"""What HTTP returns and accepts, as pydantic models; `docs/openapi.json` describes them.

Times are RFC 3339 in UTC, durations `_seconds` floats, sizes `_bytes` ints, percents 0 to 100.
Fields mirror `service.status` and `service.control` and are filled from those objects by attribute.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from snapreplay.api.schema_types import (
    Count,
    Model,
    PartitionNumber,
    RestoreMode,
    Seconds,
    Time,
    Warm,
    one_of,
)
from snapreplay.service.core.adoption import Reason
from snapreplay.service.core.phase import Phase


class Progress(Model):
    """Progress of the present phase; `eta_seconds` is null while the rate is not known."""

    unit: Annotated[str, one_of("bytes", "records")]
    from_: Annotated[
        Count,
        Field(validation_alias=AliasChoices("from_", "from"), serialization_alias="from"),
    ]
    current: Count
    target: Count
    remaining: Count
    percent: Annotated[float, Field(ge=0, le=100)]
    rate_per_second: Seconds | None
    eta_seconds: Seconds | None


class SnapshotUsed(Model):
    """The full snapshot a recovery started from."""

    snapshot_id: str
    batch: Count
    manifest_offset: Count
    entries: Count
    size_bytes: Count
    created_at: Time


class Fallback(Model):
    """What could not be used: a newer snapshot, or the preferred mode."""

    from_snapshot_id: Annotated[
        str | None, Field(description="Null: the newest snapshot was used, but in another mode.")
    ]
    reason: str


class DigestProof(Model):
    """The digest that the last increment recorded, and the one computed from what was restored."""

    recorded: str
    computed: str
    equal: bool
    batches_compared: Count


class PartitionError(Model):
    """An error and what to do about it; `hint` has the command to run, if there is one."""

    kind: str
    message: str
    hint: str
    reaction: Annotated[
        str, one_of("retry", "rebuild", "release", "stop", "handler_policy", "refuse")
    ]
    record_id: str
    at: Time


class Restore(Model):
    """The running or last recovery of one partition. Null fields are not known (yet)."""

    partition: PartitionNumber
    phase: Phase
    owner_epoch: Count | None
    percent: Annotated[
        Annotated[float, Field(ge=0, le=100)] | None,
        Field(
            description="Progress towards live: loading is one half, advancing the other. Null: not on the way to live"
            " (failed, fenced, closed)."
        ),
    ]
    attempts: Annotated[Count, Field(description="0 before the first attempt.")]
    started_at: Time | None
    finished_at: Time | None
    warm: Annotated[
        Warm | None,
        Field(
            description="If the state was still in memory: what became of the batch in doubt; kept: there was none."
            " Null: the state was restored."
        ),
    ]
    mode: RestoreMode | None
    snapshot: Annotated[
        SnapshotUsed | None, Field(description="Null: it started from the genesis, or from memory.")
    ]
    fallback: Fallback | None
    progress: Progress | None
    waiting_for: Annotated[
        str, Field(description="What the present phase is waiting for; empty: nothing.")
    ]
    ownership_doubt: Annotated[
        str,
        Field(
            description="Why another process may own this live partition by now; empty: no doubt."
        ),
    ]
    seconds_per_phase: dict[str, Seconds]
    entries: Count
    records_replayed: Count
    proof: Annotated[
        DigestProof | None,
        Field(description="Of the present state; null once the partition has left live."),
    ]
    error: PartitionError | None


WaitingFor = Annotated[
    str, Field(description="What a new app waits for before it begins, with the command; or empty.")
]


class RestoreSummary(Model):
    """Of the partitions of this process, without those that were handed over."""

    partitions_by_phase: Annotated[
        dict[str, Count],
        Field(examples=[{"live": 3, "loading": 1}], description="Only phases with partitions."),
    ]
    all_live: Annotated[bool, Field(description="Also false while no partition is assigned.")]
    percent: Annotated[
        float | None,
        Field(
            description="Mean of the partitions, 0 for those that are not on the way to live; null without partitions."
        ),
    ]


class RestoreStatus(Model):
    """How far every partition of this process is on its way to live."""

    app_id: str
    instance_id: str
    waiting_for: WaitingFor
    summary: RestoreSummary
    partitions: tuple[Restore, ...]


class Input(Model):
    """One input topic of a partition; `lag` is an upper bound, because it includes markers."""

    topic: str
    position: Count
    end_offset: Count | None
    lag: Count | None


class ValuesRead(Model):
    """How many of the restored entries could be read as the app's types."""

    read: Count
    entries: Count
    all_read: bool


class Store(Model):
    """A store of the state: `default` if it has no named stores, `_timers` and `_periods` for pending timers."""

    name: str
    entries: Count
    size_bytes: Count
    largest_entry_bytes: Annotated[
        Count,
        Field(description="Of those loaded from a snapshot or committed; the limit is 800,000."),
    ]
    next_due_ms: Annotated[
        Count | None,
        Field(
            description="Stream time at which its next timer or expiry is due; null: nothing is. Where more than 512"
            " are due within a second, it may be up to a second too early."
        ),
    ]


class BlockedTopic(Model):
    """A topic held back: `offsets` is the distance from the last stable offset to the high watermark."""

    topic: str
    last_stable_offset: Count
    offsets: Count


class Snapshot(Model):
    """A full snapshot; a recovery can use it once `state` is `pointed`."""

    partition: PartitionNumber
    snapshot_id: str
    state: Annotated[str, one_of("writing", "written", "pointed", "failed")]
    reason: str
    batch: Count
    started_at: Time
    finished_at: Time | None
    entries: Count
    chunks: Count
    size_bytes: Count
    manifest_offset: Count | None
    digest: str | None
    error: str | None


class Snapshots(Model):
    """Those this process wrote or used, newest first, at most 500."""

    items: tuple[Snapshot, ...]


class Decision(Model):
    """A finding that an operator accepted; `offset` is that of its increment."""

    offset: Count
    batch: Count
    finding: Annotated[str, Field(description="The id by which it was accepted.")]
    problem: str
    decided: str
    reason: str
    by: Annotated[str, Field(examples=["ada@host-a"])]
    at: Time


class RejectedProposal(Model):
    """A snapshot that a job proposed and the owner did not adopt."""

    manifest_offset: Count
    reason: Annotated[str, one_of(*Reason)]
    detail: str
    at: Time


class AuditProof(Model):
    """Recorded by `snapreplay audit --since-last`: everything up to and with this batch was audited without a
    finding. `offset` is that of the batch's increment."""

    level: Annotated[
        Literal["integrity", "changes", "replay"],
        Field(description="Each level includes the one before."),
    ]
    batch: Count
    offset: Count
    digest: str | None
    snapshot_id: Annotated[
        str | None, Field(description="The newest snapshot that the increment points to.")
    ]
    app_version: Annotated[
        str,
        Field(description="Of the code that was run again at level replay, else that wrote it."),
    ]
    at: Time


class Partition(Model):
    """A partition that this process owns, or recently owned (`phase` is then `closed`)."""

    partition: PartitionNumber
    phase: Phase
    owner_epoch: Count | None
    batch: Count | None
    inputs: tuple[Input, ...]
    state_entries: Count
    state_bytes: Count
    state_largest_entry_bytes: Annotated[Count, Field(description="Of all stores.")]
    stores: Annotated[tuple[Store, ...], Field(description="By name; empty before it is live.")]
    records_total: Count
    skipped_total: Count
    stream_time_ms: Count | None
    stream_time_lag_seconds: Annotated[
        float | None,
        Field(
            description="How far stream time is behind the clock of this process; negative: ahead of it. Null before"
            " the first record."
        ),
    ]
    timers_pending: Annotated[Count, Field(description="Timers of keys that are set.")]
    next_due_ms: Annotated[
        Count | None,
        Field(
            description="Stream time at which the next timer or expiry of any store is due; null: nothing is."
        ),
    ]
    timers_total: Count
    expired_total: Count
    digest: str | None
    values_read: Annotated[
        ValuesRead | None,
        Field(
            description="After a restore the stored values are read in the background. Null: not live yet, or the state"
            " is not a map."
        ),
    ]
    snapshot: Annotated[Snapshot | None, Field(description="The newest, whatever its state.")]
    last_pointed_snapshot_at: Time | None
    recoverable: Annotated[
        bool | None,
        Field(
            description="Whether a recovery now would find all it needs; checked once a minute, null unless live."
        ),
    ]
    unrecoverable_reason: Annotated[str, Field(description="Empty unless `recoverable` is false.")]
    blocked_by_open_transaction: Annotated[
        tuple[BlockedTopic, ...],
        Field(
            description="Inputs, or the increments topic, that an open transaction has held back for a minute."
        ),
    ]
    ownership_doubt: Annotated[
        str,
        Field(
            description="Why another process may own this live partition by now; empty: no doubt."
        ),
    ]
    decisions: Annotated[
        tuple[Decision, ...],
        Field(description="Newest first, as far as the increments reach back; at most 100."),
    ]
    rejected_proposals: Annotated[
        tuple[RejectedProposal, ...], Field(description="Newest first, at most 16.")
    ]
    audited: Annotated[
        tuple[AuditProof, ...] | None,
        Field(
            description="Recorded proofs, the furthest first, at most one per level; looked up once a minute, null"
            " unless live and answered."
        ),
    ]
    unaudited_batches: Annotated[
        Count | None,
        Field(description="Committed after the furthest proof; null where `audited` is null."),
    ]
    error: PartitionError | None
    updated_at: Time
    progress_age_seconds: Annotated[Seconds, Field(description="Since the last progress.")]


class Partitions(Model):
    """Ordered by partition."""

    items: tuple[Partition, ...]


class Facts(Model):
    """Who this process is; the cluster's facts are null until it was reached once."""

    app_id: str
    app_version: str
    version: str
    instance_id: str
    process_id: str
    host: str
    started_at: Time
    cluster_id: str | None
    partition_count: Count | None
    waiting_for: WaitingFor


class Check(Model):
    """One line of a probe's answer."""

    name: str
    ok: bool
    detail: str


class Probe(Model):
    """`ok` if all checks are; the status code says the same (200, 503)."""

    status: Annotated[str, one_of("ok", "failing")]
    checks: tuple[Check, ...]

"""Histories, as the increments topic has them. Of a key: the recorded changes of its value, batch by batch. Of a
partition: who owned it, which snapshots were pointed to, and what was decided about its state."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.service.control.status import Decision
from snapreplay.service.control.vocabulary import Count, Time, said

CHANGES_MAX = 100
"""Of one answer."""
LOG_BYTES_MAX = 64 * 1024 * 1024
"""Of the records that are read for one answer. Only the batch that exceeds it is read beyond."""
SHARE = 0.25
"""Of the loop of the runners, while the log is read."""


class ReadKeyHistory(msgspec.Struct, frozen=True, tag="key-history"):
    """Asks how the value of a key came to be, whoever owns the partition. `before`: only below this offset of the
    increments topic."""

    store: str
    key: str
    partition: int
    limit: int = 20
    before: int | None = None


class ReadRecords(msgspec.Struct, frozen=True):
    """A run of records of one input topic that a batch has read: `start_offset` ≤ offset < `end_offset`."""

    topic: str
    start_offset: Count
    end_offset: Count


class ChangeAt(msgspec.Struct, frozen=True):
    """One batch that has changed the key."""

    batch: Count
    increment_offset: Annotated[Count, said("Of the batch's increment, in the increments topic.")]
    written_at: Annotated[Time, said("By the clock of the owner's host.")]
    owner_epoch: Annotated[Count, said("Of the owner that committed the batch.")]
    ranges: Annotated[tuple[ReadRecords, ...], said("What the batch has read, in the order applied.")]


class KeyChange(ChangeAt, frozen=True):
    """A change with the value after it, as it is stored; None: deleted."""

    stored: bytes | None


class Looked(msgspec.Struct, frozen=True):
    """Says how far the log was looked at."""

    from_batch: Annotated[Count | None, said("The oldest batch that was looked at; null: none was.")]
    from_offset: Annotated[
        Count | None, said("Of its increment. Given as `before`, it leads to what is older; null: none was looked at.")
    ]
    batches_without_changes: Annotated[
        Count, said("Batches among them whose changes are not recorded or damaged: each may have changed the key.")
    ]
    is_whole: Annotated[
        bool, said("Whether the first batch of all was looked at: neither trimming nor a limit ended it before.")
    ]


class KeyHistory(Looked, frozen=True, tag="key-changes"):
    """The changes that were found, newest first."""

    changes: tuple[KeyChange, ...]
    partition_count: int


HISTORY_SECONDS = 5.0
"""So long the log is read for one answer."""
OWNERSHIPS_MAX = 100
SNAPSHOTS_MAX = 100


class PastOwnership(msgspec.Struct, frozen=True):
    """One claim of a partition, and the last batch that its owner committed; null: it committed none."""

    owner_epoch: Annotated[Count, said("Offset of the claim in the increments topic.")]
    process_id: Annotated[str, said("Empty, as the next two: the claim was trimmed.")]
    instance_id: str
    host: str
    claimed_at: Annotated[Time | None, said("By the clock of its host; null: the claim was trimmed.")]
    last_batch: Count | None = None
    last_commit_at: Time | None = None


class PointedSnapshot(msgspec.Struct, frozen=True):
    """A full snapshot that an increment points or pointed to."""

    snapshot_id: str
    batch: Annotated[Count, said("Whose state it has.")]
    manifest_offset: Count
    increment_offset: Annotated[Count, said("Of the increment of that batch: a recovery continues after it.")]
    batch_at: Annotated[Time | None, said("When that batch was committed; null: its increment was trimmed.")]
    is_kept: Annotated[bool, said("Whether the last increment still points to it.")]


class PartitionHistory(msgspec.Struct, frozen=True, tag="partition-history"):
    """The last 100 ownerships, snapshots and decisions of a partition, newest first, as far as its log reaches back."""

    partition: Count
    ownerships: tuple[PastOwnership, ...]
    snapshots: tuple[PointedSnapshot, ...]
    is_whole: Annotated[
        bool,
        said(
            "Whether this is all that the log has. False if the time limit or the number of ownerships ended the"
            " reading."
        ),
    ]
    decisions: tuple[Decision, ...] = ()

"""What is read from Kafka when somebody asks. Of a key: the recorded changes of its value, batch by batch. Of a
partition: who owned it, which snapshots were pointed to, and what was decided about its state. Of an app: its
savepoints, and the newest dead letters."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.errors import RetryableError
from snapreplay.service.control.status import Decision
from snapreplay.service.control.vocabulary import Count, Time, one_of, said

CHANGES_MAX = 100
"""Of one answer."""
LOG_BYTES_MAX = 64 * 1024 * 1024
"""Of the records that are read for one answer. Only the batch that exceeds it is read beyond."""
SHARE = 0.25
"""Of the loop of the runners, while the log is read."""


class ReadKeyHistory(msgspec.Struct, frozen=True, tag="key-history"):
    """Asks any process how the value of a key came to be. `before`: only below this offset of the
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

    from_batch: Annotated[Count | None, said("The oldest batch that was read; null: none was.")]
    from_offset: Annotated[Count | None, said("Offset of its increment; pass it as `before` for older changes.")]
    batches_without_changes: Annotated[Count, said("Batches without recorded changes; each may have changed the key.")]
    is_whole: Annotated[bool, said("Whether the first batch of the log was reached.")]


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
    is_whole: Annotated[bool, said("Whether this is everything in the log, not cut off by a limit.")]
    decisions: tuple[Decision, ...] = ()


class SavepointPart(msgspec.Struct, frozen=True):
    """The state of one partition in a savepoint. What is null is not there."""

    partition: Count
    batch: Annotated[Count | None, said("Whose state it is.")] = None
    entries: Count | None = None
    digest: str | None = None
    positions: Annotated[dict[str, Count] | None, said("Input → next offset.")] = None
    kept_at: Time | None = None
    problem: Annotated[str | None, said("Why it cannot be used; null: it can be.")] = None


class SavepointShown(msgspec.Struct, frozen=True):
    """A savepoint, with a part for each partition."""

    app_id: str
    savepoint: Annotated[str, said("Its name.")]
    usable: Annotated[bool, said("Whether every part is there, by its increment and its manifest.")]
    by: str | None
    reason: str | None
    partitions: tuple[SavepointPart, ...]

    @property
    def problems(self) -> list[str]:
        """Why it cannot be used; empty: it can be."""
        return [f"partition {part.partition}: {part.problem}" for part in self.partitions if part.problem]


class SavepointList(msgspec.Struct, frozen=True, tag="savepoints"):
    """Savepoints, by name."""

    items: tuple[SavepointShown, ...] = ()


class SavepointsUnread(RetryableError):
    """The savepoints cannot be read now.

    Safe: Nothing was changed.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the savepoints cannot be read: {why}", hint="ask again; GET /readyz shows the state of the cluster"
        )
        self.why = why


LETTERS_MAX = 100
VALUE_CHARACTERS_MAX = 4000


class DeadLetter(msgspec.Struct, frozen=True):
    """A record or timer that a handler could not process, with the reason. Text that is not UTF-8 has escapes."""

    partition: Annotated[Count, said("Of the dead-letters topic.")]
    offset: Annotated[Count, said("There.")]
    written_at: Time
    exception: str
    message: str
    app_version: str
    state: Annotated[
        str, one_of("open", "sent_back", "passed_over"), said("`open`: no redrive has come as far as this one.")
    ]
    passed_over: Annotated[str, said("Why a redrive skipped it, in one word.", examples=["timer"])] = ""
    topic: Annotated[str, said("The input of the record; empty: it is a timer.")] = ""
    input_partition: Count | None = None
    input_offset: Count | None = None
    timer: Annotated[str, said("Its name; empty: it is a record.")] = ""
    key: str | None = None
    value: Annotated[str | None, said(f"Its first {VALUE_CHARACTERS_MAX:,} characters.")] = None
    value_is_cut: Annotated[bool, said("Whether the value is longer.")] = False
    headers: Annotated[dict[str, str], said(f"Those of the record: {VALUE_CHARACTERS_MAX:,} characters of them.")] = {}
    headers_left_out: Annotated[Count, said("Number of further headers of the record.")] = 0
    dropped: Annotated[str, said("The parts that did not fit into the dead letter, such as `value`.")] = ""


class DeadLetterList(msgspec.Struct, frozen=True, tag="dead-letters"):
    """The newest dead letters, newest first."""

    topic: Annotated[str | None, said("Null: the app has none, because `errors.policy` is not `dead_letter`.")]
    items: tuple[DeadLetter, ...] = ()

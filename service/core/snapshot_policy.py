"""The rule when a full snapshot is due. Pure: times and counts come in, a reason goes out."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace


class SnapshotPolicy(Struct, frozen=True):
    """The rules for a snapshot, whichever comes first; None switches a rule off."""

    every_records: float | None
    every_ms: float | None
    jitter_ratio: float

    def of(self, app_id: str, partition: int) -> SnapshotPolicy:
        """Return the policy of one partition: intervals up to `jitter_ratio` shorter, always by the same amount, so
        that partitions do not all write at once."""
        kept_share = 1.0 - self.jitter_ratio * spread(app_id, partition)
        return replace(
            self,
            every_records=self.every_records and kept_share * self.every_records,
            every_ms=self.every_ms and kept_share * self.every_ms,
        )


INTERVALS_MIN = 4  # of snapshots in what the shortest input retains: a quarter each


class SinceSnapshot(Struct, frozen=True):
    """The work since the newest snapshot was marked, or since LIVE (`is_first`). `batch_records`: of the last batch;
    the next may be as large."""

    records: int
    elapsed_ms: int
    is_first: bool = False
    per_second: float = 0.0
    batch_records: int = 0


USED_SHARE = 2 / 3
"""Of the time that an objective leaves for records. On a busy machine a tenth of all restores took half as long again
as predicted (measured)."""
WRITING_SHARE_MAX = 0.25  # of the time, for snapshots that an objective asks for
FLOOR_MS = 1000


class Objective(Struct, frozen=True):
    """The longest time that a restore may take by the prediction. `size_bytes`: of the newest snapshot;
    `write_seconds`: from the mark of a snapshot until it is pointed to; `offsets_per_record`: markers and dead letters
    make it more than 1."""

    seconds: float
    speed: Speed
    size_bytes: int
    write_seconds: float
    offsets_per_record: float = 1.0

    def predicted(self, records: float) -> float:
        return self.speed.seconds(self.size_bytes, records * self.offsets_per_record)

    @property
    def is_reachable(self) -> bool:
        """Whether a restore directly after a snapshot keeps it: what must be loaded does not alone take as long."""
        return self.predicted(0) < self.seconds

    @property
    def limit_seconds(self) -> float:
        """The prediction that is not to be exceeded. Of an objective that no snapshot can keep: twice the least."""
        fresh = self.predicted(0)
        return fresh + USED_SHARE * (self.seconds - fresh) if self.is_reachable else 2 * fresh

    @property
    def floor_ms(self) -> float:
        """The least time between two marks: at any rates, snapshots do not follow each other at once."""
        return max(FLOOR_MS, self.write_seconds * 1000 / WRITING_SHARE_MAX)

    def is_due(self, since: SinceSnapshot) -> bool:
        """Say whether a restore would take too long before a snapshot that begins now is pointed to."""
        if since.elapsed_ms < self.floor_ms and not since.is_first:
            return False
        meanwhile = since.per_second * self.write_seconds
        return self.predicted(since.records + meanwhile + since.batch_records) > self.limit_seconds


class Unpointed(Struct, frozen=True):
    """The records and the time that no snapshot covers that is pointed to. Times are the loop's, in seconds; between
    two ownerships they count from the end of the first.

    Attributes:
        records: applied since the newest snapshot was marked; too many is harmless, too few is not.
        pointed_at: when the newest one that is pointed to was marked.
        fell_back: the damage that the recovery met will be met again.
        mended_from_batch: a snapshot of this batch or a later one ends `fell_back`.
        marked: records that the newest snapshot covers, while nothing points to it.
    """

    records: int = 0
    marked_at: float = 0.0
    pointed_at: float = 0.0
    fell_back: bool = False
    mended_from_batch: int = 0
    marked: int = 0

    def shifted(self, seconds: float) -> Unpointed:
        """Let times count from so many seconds earlier."""
        return replace(self, marked_at=self.marked_at + seconds, pointed_at=self.pointed_at + seconds)

    def left(self, now: float) -> Unpointed:
        """Return what an ownership leaves that ends now: nothing will point to a snapshot that waits for it."""
        return replace(self.unmarked(), marked_at=self.pointed_at).shifted(-now)

    def applied(self, records: int) -> Unpointed:
        return replace(self, records=self.records + records)

    def mark(self, at: float) -> Unpointed:
        """Begin to count again with a snapshot of all that was applied."""
        return replace(self, records=0, marked=self.records, marked_at=at)

    def unmarked(self, records_min: int = 0) -> Unpointed:
        """Give the newest snapshot up: what it covers counts again, as so many records at least."""
        return replace(self, records=self.records + max(records_min, self.marked), marked=0)

    def adopted(self, records: int, at: float) -> Unpointed:
        """Take a snapshot of another's as one that was marked then; `records` were applied since."""
        left = min(self.records, records)
        return replace(self, records=left, marked=self.records - left, marked_at=max(self.marked_at, at))

    def mends(self, batch: int) -> bool:
        """Say whether a snapshot of this batch lies behind all damage."""
        return batch >= self.mended_from_batch

    def pointed(self, batch: int) -> Unpointed:
        """Note that the newest snapshot, of this batch, is pointed to."""
        left = self.fell_back and not self.mends(batch)
        return replace(self, marked=0, pointed_at=self.marked_at, fell_back=left)

    def lost(self, batch: int) -> Unpointed:
        """Note that there is no snapshot any more, at this batch."""
        return replace(self, fell_back=True, mended_from_batch=batch)


def snapshot_due(policy: SnapshotPolicy, since: SinceSnapshot, objective: Objective | None = None) -> str | None:
    """Return the reason ("records", "interval" or "objective"), or None. Never due when nothing was applied since.
    `policy`: of this partition."""
    if since.records == 0:
        return None
    if policy.every_records is not None and since.records >= policy.every_records:
        return "records"
    if policy.every_ms is not None and since.elapsed_ms >= policy.every_ms:
        return "interval"
    return "objective" if objective is not None and objective.is_due(since) else None


def within_retention(policy: SnapshotPolicy, retention_ms: int | None, snapshots_kept: int) -> SnapshotPolicy:
    """Return the policy of an app that recovers by replay: the input must hold everything since the oldest kept
    snapshot, so one interval more than snapshots are kept fits into `retention_ms` (None: nothing is deleted by time).
    """
    if retention_ms is None:
        return policy
    most_ms = max(1, retention_ms // max(INTERVALS_MIN, snapshots_kept + 1))
    return replace(policy, every_ms=min(policy.every_ms or most_ms, most_ms))


def spread(app_id: str, partition: int) -> float:
    """Return a number in [0, 1), the same for a partition on every process."""
    return (zlib.crc32(f"{app_id}/{partition}".encode()) % 1000) / 1000


class Speed(NamedTuple):
    """The speed of restores by one mode."""

    before_loading_seconds: float
    load_bytes_per_second: float
    advanced_per_second: float

    def seconds(self, size_bytes: int, records: float) -> float:
        """Predict the seconds from fencing to live: of a snapshot of this size, and so many records behind it."""
        loading, advancing = size_bytes / self.load_bytes_per_second, records / self.advanced_per_second
        return self.before_loading_seconds + loading + advancing

"""When a full snapshot is due. Pure: times and counts come in, a reason goes out."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class SnapshotPolicy:
    """Whichever comes first. None switches a rule off.

    `jitter_ratio` spreads partitions: partition p's interval is up to that share shorter, always by the same
    amount, so that partitions of one process do not all write at once.
    """

    every_records: int | None
    every_ms: int | None
    jitter_ratio: float


@dataclass(frozen=True)
class SinceSnapshot:
    """What happened since the newest full snapshot was marked (or since LIVE, if there is none)."""

    records: int
    elapsed_ms: int


def snapshot_due(
    policy: SnapshotPolicy, since: SinceSnapshot, app_id: str, partition: int
) -> str | None:
    """The reason ("records" or "interval"), or None. Never due when nothing was applied since."""
    if since.records == 0:
        return None
    kept_share = 1.0 - policy.jitter_ratio * _spread(app_id, partition)
    if policy.every_records is not None and since.records >= kept_share * policy.every_records:
        return "records"
    if policy.every_ms is not None and since.elapsed_ms >= kept_share * policy.every_ms:
        return "interval"
    return None


def _spread(app_id: str, partition: int) -> float:
    """In [0, 1), the same for a partition on every process."""
    return (zlib.crc32(f"{app_id}/{partition}".encode()) % 1000) / 1000

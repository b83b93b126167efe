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
    if policy.every_records is not None:
        if since.records >= _shortened(
            policy.every_records, policy.jitter_ratio, app_id, partition
        ):
            return "records"
    if policy.every_ms is not None:
        if since.elapsed_ms >= _shortened(policy.every_ms, policy.jitter_ratio, app_id, partition):
            return "interval"
    return None


def _shortened(value: int, jitter_ratio: float, app_id: str, partition: int) -> float:
    share = (zlib.crc32(f"{app_id}/{partition}".encode()) % 1000) / 1000
    return value * (1.0 - jitter_ratio * share)

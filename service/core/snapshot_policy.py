"""The rule when a full snapshot is due. Pure: times and counts come in, a reason goes out."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SnapshotPolicy:
    """The rules for a snapshot, whichever comes first. None switches a rule off.

    `jitter_ratio` spreads partitions: partition p's interval is up to that share shorter, always by the same
    amount, so that partitions of one process do not all write at once.
    """

    every_records: int | None
    every_ms: int | None
    jitter_ratio: float


MISSED_MAX = 3  # intervals without a snapshot of a job
INTERVALS_MIN = 4  # of snapshots in what the shortest input retains: a quarter each


@dataclass(frozen=True)
class SinceSnapshot:
    """The work since the newest full snapshot was marked (or since LIVE, if there is none)."""

    records: int
    elapsed_ms: int


def snapshot_due(
    policy: SnapshotPolicy, since: SinceSnapshot, app_id: str, partition: int
) -> str | None:
    """Return the reason ("records" or "interval"), or None. Never due when nothing was applied since."""
    if since.records == 0:
        return None
    kept_share = 1.0 - policy.jitter_ratio * spread(app_id, partition)
    if policy.every_records is not None and since.records >= kept_share * policy.every_records:
        return "records"
    if policy.every_ms is not None and since.elapsed_ms >= kept_share * policy.every_ms:
        return "interval"
    return None


def safety_net(policy: SnapshotPolicy) -> SnapshotPolicy:
    """Return the policy of an owner that leaves snapshots to jobs: it takes one itself when some of them failed to
    come."""
    return replace(
        policy,
        every_records=policy.every_records and MISSED_MAX * policy.every_records,
        every_ms=policy.every_ms and MISSED_MAX * policy.every_ms,
    )


def within_retention(
    policy: SnapshotPolicy, retention_ms: int | None, snapshots_kept: int
) -> SnapshotPolicy:
    """Return the policy of an app that recovers by replay: the input must still hold everything since the oldest kept
    snapshot, so as many intervals as snapshots are kept, and one more, fit into what it retains. Also when the rule by
    time was switched off. `retention_ms`: of the shortest input, None when nothing is ever deleted by time.
    """
    if retention_ms is None:
        return policy
    most_ms = max(1, retention_ms // max(INTERVALS_MIN, snapshots_kept + 1))
    return replace(policy, every_ms=min(policy.every_ms or most_ms, most_ms))


def spread(app_id: str, partition: int) -> float:
    """Return a number in [0, 1), the same for a partition on every process."""
    return (zlib.crc32(f"{app_id}/{partition}".encode()) % 1000) / 1000

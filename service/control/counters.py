"""The metrics of what happens (batches, snapshots, restores): counted where it happens, by `PartitionMetrics`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

EVENTS = CollectorRegistry()
"""What happened in this process, with the standard `process_`, `python_gc_` and `python_info`."""

ProcessCollector(registry=EVENTS)
PlatformCollector(registry=EVENTS)
GCCollector(registry=EVENTS)

PARTITION = ("app", "partition")
_FAST_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
_SLOW_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 10)
_SIZE_BYTES = tuple(4.0**power * 1024 for power in range(11))  # 1 KiB to 1 GiB


class Result(StrEnum):
    """The end of a snapshot or a restore."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"  # the partition moved away, or its owner was fenced


def _counter(name: str, says: str, *labels: str) -> Counter:
    return Counter(name, says, (*PARTITION, *labels), registry=EVENTS)


def _histogram(name: str, says: str, buckets: Sequence[float]) -> Histogram:
    return Histogram(name, says, PARTITION, registry=EVENTS, buckets=buckets)


BATCHES = _counter("snapreplay_batches_total", "Committed batches, including empty ones that only point to a snapshot.")
COMMIT_SECONDS = _histogram(
    "snapreplay_commit_seconds", "Time from a transaction's first send to the answer to its commit.", _FAST_SECONDS
)
APPLY_SECONDS = _histogram(
    "snapreplay_apply_seconds",
    "Time to apply a batch: its handlers, and the encoding of the changes; without repeated runs of a failed batch.",
    _FAST_SECONDS,
)
SNAPSHOTS = _counter(
    "snapreplay_snapshots_total", "Full snapshots that ended: `succeeded`, `failed`, `abandoned`.", "result"
)
SNAPSHOT_SECONDS = _histogram(
    "snapreplay_snapshot_seconds",
    "Time from the start of a successful full snapshot to its acknowledged manifest.",
    _SLOW_SECONDS,
)
SNAPSHOT_BYTES = _histogram(
    "snapreplay_snapshot_bytes", "Size in Kafka of chunks and manifest, for successful full snapshots.", _SIZE_BYTES
)
PROPOSALS = _counter(
    "snapreplay_proposals_total", "Snapshots proposed by jobs: `adopted`, or the reason for the rejection.", "result"
)
RESTORES = _counter(
    "snapreplay_restores_total",
    "Recoveries that ended: `succeeded`, `failed`, `abandoned`. The mode is `changes`, `replay`, `warm` (from memory)"
    " or `none` (nothing after the snapshot).",
    "result",
    "mode",
)
RESTORE_SECONDS = _histogram(
    "snapreplay_restore_seconds", "Time from FENCING to LIVE, for successful recoveries.", _SLOW_SECONDS
)
RESTORE_PREDICTION_RATIO = _histogram(
    "snapreplay_restore_prediction_ratio",
    "Predicted divided by real duration of a successful recovery, above 1 if it was faster than predicted; without"
    " recoveries from memory or with several attempts.",
    _RATIOS,
)
DRILLS = _counter(
    "snapreplay_drills_total",
    "Drills that ended: `succeeded`, `failed` (a recovery would fail or fall back), `given_up` (nothing is proven).",
    "result",
)
DRILL_SECONDS = _histogram(
    "snapreplay_drill_seconds", "Duration of a restore, by a successful drill, without its pauses.", _SLOW_SECONDS
)
FENCES = _counter("snapreplay_fences_total", "Number of times that this process found a newer owner.")
LATE_RECORDS = _counter(
    "snapreplay_late_records_total",
    "Records that came too late for a window or join (`window`: its name). They do not count in it.",
    "window",
)
FAILURES = _counter(
    "snapreplay_failures_total",
    "Errors that ended a recovery or processing, by class (`kind`) and `reaction`.",
    "kind",
    "reaction",
)


def _of_process(name: str, says: str) -> Counter:
    return Counter(name, says, ("app",), registry=EVENTS)


TAKEOVERS = _of_process(
    "snapreplay_takeovers_total", "Partitions that this process has taken over from processes that seemed to be dead."
)
FALSE_ALARMS = _of_process(
    "snapreplay_false_alarms_total",
    "Processes whose partitions this process took over although they were still members of the group.",
)
THROTTLED_SECONDS = Counter(
    "snapreplay_throttled_seconds_total",
    "Time for which brokers throttled connections of this process because of a quota, by kind of request: `Produce`,"
    " `Fetch` and others. The sum over all connections, so it may grow by more than a second per second.",
    ("request",),
    registry=EVENTS,
)
for _request in ("Produce", "Fetch"):  # so that the series start at 0 and the first wait shows as an increase
    THROTTLED_SECONDS.labels(_request)


class PartitionMetrics:
    """Counts what happens in one partition. Cheap enough for the hot path; any thread."""

    def __init__(self, app_id: str, partition: int) -> None:
        self._labels = (app_id, str(partition))
        self._batches = BATCHES.labels(*self._labels)
        self._commit_seconds = COMMIT_SECONDS.labels(*self._labels)
        self._apply_seconds = APPLY_SECONDS.labels(*self._labels)
        # Made now, so that the series start at 0 and the first one shows as an increase.
        self._fences = FENCES.labels(*self._labels)
        DRILLS.labels(*self._labels, "failed")

    def batch_applied(self, seconds: float) -> None:
        self._apply_seconds.observe(seconds)

    def batch_committed(self, seconds: float) -> None:
        self._batches.inc()
        self._commit_seconds.observe(seconds)

    def snapshot_ended(self, result: Result, *, seconds: float = 0.0, size_bytes: int = 0) -> None:
        """Count an ended snapshot; `seconds` and `size_bytes` count only if it succeeded."""
        SNAPSHOTS.labels(*self._labels, result).inc()
        if result is Result.SUCCEEDED:
            SNAPSHOT_SECONDS.labels(*self._labels).observe(seconds)
            SNAPSHOT_BYTES.labels(*self._labels).observe(size_bytes)

    def proposal_ended(self, result: str) -> None:
        """Count an ended proposal; `result`: "adopted" or a `Reason`: a small fixed set."""
        PROPOSALS.labels(*self._labels, result).inc()

    def restore_ended(self, result: Result, mode: str | None, *, seconds: float = 0.0) -> None:
        """Count an ended restore; `mode` as in `RestoreStatus`, or "warm". None: nothing was to be brought forward."""
        RESTORES.labels(*self._labels, result, mode or "none").inc()
        if result is Result.SUCCEEDED:
            RESTORE_SECONDS.labels(*self._labels).observe(seconds)

    def restore_predicted(self, ratio: float) -> None:
        RESTORE_PREDICTION_RATIO.labels(*self._labels).observe(ratio)

    def drill_ended(self, result: str, seconds: float | None = None) -> None:
        """Count an ended drill; `result`: a `DrillState`. `seconds`: of one that succeeded."""
        DRILLS.labels(*self._labels, result).inc()
        if seconds is not None:
            DRILL_SECONDS.labels(*self._labels).observe(seconds)

    def late(self, window: str, count: int) -> None:
        """Count late records; `window`: a name that the app has declared."""
        LATE_RECORDS.labels(*self._labels, window).inc(count)

    def fenced(self) -> None:
        self._fences.inc()

    def failed(self, kind: str, reaction: str) -> None:
        """Count a failure; `kind` is the error's class name, `reaction` its `Reaction` value: small fixed sets."""
        FAILURES.labels(*self._labels, kind, reaction).inc()

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


BATCHES = _counter("snapreplay_batches_total", "Batches committed, empty ones that only carry a pointer included.")
COMMIT_SECONDS = _histogram(
    "snapreplay_commit_seconds",
    "From the first send of a batch's transaction to the broker's answer to its commit.",
    _FAST_SECONDS,
)
SNAPSHOTS = _counter("snapreplay_snapshots_total", "Full snapshots that ended, by result.", "result")
SNAPSHOT_SECONDS = _histogram(
    "snapreplay_snapshot_seconds",
    "From the mark to the acknowledged manifest, successful full snapshots only.",
    _SLOW_SECONDS,
)
SNAPSHOT_BYTES = _histogram(
    "snapreplay_snapshot_bytes", "Size in Kafka of a successful full snapshot, chunks and manifest.", _SIZE_BYTES
)
PROPOSALS = _counter(
    "snapreplay_proposals_total",
    "Snapshots proposed by jobs: adopted, the reason of the rejection, or missed when none came in time.",
    "result",
)
RESTORES = _counter(
    "snapreplay_restores_total",
    "Recoveries that ended, by result and mode (changes, replay, warm, none).",
    "result",
    "mode",
)
RESTORE_SECONDS = _histogram(
    "snapreplay_restore_seconds", "From FENCING to LIVE, successful recoveries only.", _SLOW_SECONDS
)
RESTORE_PREDICTION_RATIO = _histogram(
    "snapreplay_restore_prediction_ratio",
    "Predicted by true seconds of a successful recovery that was not from memory and had one attempt.",
    _RATIOS,
)
DRILLS = _counter("snapreplay_drills_total", "Drills that ended: succeeded, failed or given_up.", "result")
DRILL_SECONDS = _histogram(
    "snapreplay_drill_seconds", "Seconds that a restore takes, as a successful drill has shown.", _SLOW_SECONDS
)
AUDITS = _counter("snapreplay_audits_total", "Audits that this process ran: succeeded, failed or given_up.", "result")
FENCES = _counter("snapreplay_fences_total", "Times this process found that a newer owner had fenced it.")
FAILURES = _counter(
    "snapreplay_failures_total",
    "Errors that ended an attempt of a partition, by class and reaction.",
    "kind",
    "reaction",
)


def _of_process(name: str, says: str) -> Counter:
    return Counter(name, says, ("app",), registry=EVENTS)


TAKEOVERS = _of_process(
    "snapreplay_takeovers_total", "Partitions taken over by a warm copy from a process that seemed to be dead."
)
FALSE_ALARMS = _of_process(
    "snapreplay_false_alarms_total", "Processes that were taken over from, and were members of the group still."
)
WORKER_RESTARTS = _of_process(
    "snapreplay_worker_restarts_total", "Times that this worker of `run --processes` was started again."
)


class TakeoverMetrics:
    """Counts takeovers from processes that seem to be dead. Both series start at 0."""

    def __init__(self, app_id: str) -> None:
        self._takeovers, self._false_alarms = TAKEOVERS.labels(app_id), FALSE_ALARMS.labels(app_id)

    def begun(self) -> None:
        self._takeovers.inc()

    def false_alarm(self) -> None:
        self._false_alarms.inc()


class PartitionMetrics:
    """Counts what happens in one partition. Cheap enough for the hot path; any thread."""

    def __init__(self, app_id: str, partition: int) -> None:
        self._labels = (app_id, str(partition))
        self._batches = BATCHES.labels(*self._labels)
        self._commit_seconds = COMMIT_SECONDS.labels(*self._labels)
        # Made now, so that the series start at 0 and the first one shows as an increase.
        self._fences = FENCES.labels(*self._labels)
        for each in (DRILLS, AUDITS):
            each.labels(*self._labels, "failed")

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
        """Count an ended proposal; `result`: "adopted", a `Reason`, or "missed": a small fixed set."""
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

    def audit_ended(self, result: str) -> None:
        """Count an ended audit of this process; `result`: an `AuditState`."""
        AUDITS.labels(*self._labels, result).inc()

    def fenced(self) -> None:
        self._fences.inc()

    def failed(self, kind: str, reaction: str) -> None:
        """Count a failure; `kind` is the error's class name, `reaction` its `Reaction` value: small fixed sets."""
        FAILURES.labels(*self._labels, kind, reaction).inc()

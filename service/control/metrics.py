"""Every metric: name, type, unit, labels. docs/metrics.md explains each; a test compares.

There are two kinds. What *is* (phase, lag, sizes) is read from the status when Prometheus asks, so it is never
stale. What *happens* (batches, snapshots, restores) is counted where it happens, by `PartitionMetrics`.

Seconds, bytes and ratios 0 to 1 only; labels are `app`, `partition` and words of a fixed small set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from snapreplay.service.control.partition_gauges import SHOWN, Shown
from snapreplay.service.control.protocol import Family, StatusDocument
from snapreplay.service.control.status import PartitionStatus, StandbyStatus
from snapreplay.service.core.phase import CopyState, Phase

EVENTS = CollectorRegistry()
"""What happened in this process, with the standard `process_`, `python_gc_` and `python_info`."""

ProcessCollector(registry=EVENTS)
PlatformCollector(registry=EVENTS)
GCCollector(registry=EVENTS)

_PARTITION = ("app", "partition")
_FAST_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
_SLOW_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_SIZE_BYTES = tuple(4.0**power * 1024 for power in range(11))  # 1 KiB to 1 GiB


class Result(StrEnum):
    """The end of a snapshot or a restore."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"  # the partition moved away, or its owner was fenced


# ----------------------------------------------------------- what happens: counted by the runners


def _counter(name: str, says: str, *labels: str) -> Counter:
    return Counter(name, says, (*_PARTITION, *labels), registry=EVENTS)


def _histogram(name: str, says: str, buckets: Sequence[float]) -> Histogram:
    return Histogram(name, says, _PARTITION, registry=EVENTS, buckets=buckets)


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
        # Made now, so that the series starts at 0 and the first fence shows as an increase.
        self._fences = FENCES.labels(*self._labels)

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

    def fenced(self) -> None:
        self._fences.inc()

    def failed(self, kind: str, reaction: str) -> None:
        """Count a failure; `kind` is the error's class name, `reaction` its `Reaction` value: small fixed sets."""
        FAILURES.labels(*self._labels, kind, reaction).inc()


class DocumentCollector(Collector):
    """A collector of what a process is, by its document, then of what happened in it."""

    def __init__(self, document: StatusDocument, happened: Sequence[Family]) -> None:
        self._document = document
        self._happened = happened

    def collect(self) -> Iterator[Metric]:
        facts = self._document.facts
        partitions = [each for each in self._document.partitions if each.phase is not Phase.CLOSED]
        yield from _process_gauges(self._document, len(partitions))
        yield from _copies(facts.app_id, self._document.standbys)
        for each in SHOWN:
            yield _filled(each, facts.app_id, partitions)
        yield from shown(self._happened)


def _process_gauges(document: StatusDocument, assigned: int) -> Iterator[GaugeMetricFamily]:
    facts = document.facts
    labels = {"app": facts.app_id, "version": facts.version, "app_version": facts.app_version}
    yield _one("snapreplay_build_info", "Always 1: which versions run here.", labels, 1)
    app, ready = {"app": facts.app_id}, all(check.ok for check in document.ready_checks)
    yield _one("snapreplay_partitions_assigned", "Partitions this process owns.", app, assigned)
    yield _one("snapreplay_ready", "1 when /readyz would answer 200, else 0.", app, float(ready))


def _copies(app: str, copies: Sequence[StandbyStatus]) -> Iterator[GaugeMetricFamily]:
    held = GaugeMetricFamily("snapreplay_standbys", "Warm copies held here, by state.", labels=("app", "state"))
    lag = GaugeMetricFamily("snapreplay_standby_lag_offsets", "Offsets of the log behind the copy.", labels=_PARTITION)
    for state in CopyState:
        held.add_metric((app, state), sum(each.state == state for each in copies))
    for each in copies:
        lag.add_metric((app, str(each.partition)), each.lag_offsets)
    yield from (held, lag)


def _one(name: str, says: str, labels: Mapping[str, str], value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, says, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _filled(shown: Shown, app_id: str, partitions: Sequence[PartitionStatus]) -> Metric:
    family_of = CounterMetricFamily if shown.name.endswith("_total") else GaugeMetricFamily
    labels = (*_PARTITION, shown.label) if shown.label else _PARTITION
    family = family_of(shown.name, shown.help, labels=labels)
    for status in partitions:
        found = shown.value(status)
        place = (app_id, str(status.partition))
        samples = (
            {(*place, name): value for name, value in found.items()} if isinstance(found, Mapping) else {place: found}
        )
        for values, value in samples.items():
            if value is not None:
                family.add_metric(values, value)
    return family


def counted(registry: CollectorRegistry) -> tuple[Family, ...]:
    """Return what the registry holds now. Any thread."""
    return tuple(
        Family(
            each.name,
            each.documentation,
            each.type,
            tuple((sample.name, sample.labels, sample.value) for sample in each.samples),
        )
        for each in registry.collect()
    )


def shown(families: Iterable[Family]) -> Iterator[Metric]:
    """Convert families back, the reverse of `counted`."""
    for each in families:
        metric = Metric(each.name, each.help, each.kind)
        for name, labels, value in each.samples:
            metric.add_sample(name, labels, value)
        yield metric

"""Every metric: name, type, unit, labels. docs/runbook.md explains each; a test compares.

There are two kinds. What *is* (phase, lag, sizes) is read from the status when Prometheus asks, so it is never
stale: here. What *happens* (batches, snapshots, restores) is counted where it happens: `counters.py`.

Seconds, bytes and ratios 0 to 1 only; labels are `app`, `partition` and words of a fixed small set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from snapreplay.service.control.counters import PARTITION
from snapreplay.service.control.protocol import StatusDocument
from snapreplay.service.control.status import BlockedTopic, PartitionStatus, StandbyStatus, StoreStatus
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.phase import RECOVERING, CopyState, Phase

Value = float | None | Mapping[str, float | None]
"""None: no sample, because the value is not known. A mapping has a sample for each value of one more label."""


class Shown(NamedTuple):
    """A gauge of each partition, or a counter if its name ends so; `label`: of the mapping that is its value."""

    name: str
    help: str
    value: Callable[[PartitionStatus], Value]
    label: str = ""


def lag_records(status: PartitionStatus) -> float | None:
    """Sum up the lags of all inputs; None: one of them is not known."""
    return _sum([each.lag for each in status.inputs])


def _sum(lags: Sequence[int | None]) -> float | None:
    return None if None in lags or not lags else float(sum(lag or 0 for lag in lags))


def _since(blocked: BlockedTopic) -> float | None:
    held_by = blocked.held_by
    return _timestamp(held_by.started_at or held_by.last_record_at) if held_by else None


def _timestamp(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _restore_ratio(status: PartitionStatus) -> float | None:
    percent = status.restored_percent
    wanted = status.phase is Phase.LIVE or status.phase in RECOVERING
    return percent / 100 if wanted and percent is not None else None


def predicted_seconds(status: PartitionStatus) -> float | None:
    """Return what a restore would take now; None: not known."""
    if status.objective is not None:
        return status.objective.predicted_seconds
    plan = status.restore_plan
    return plan.first.predicted_seconds if plan is not None and plan.first is not None else None


def _stores(value: Callable[[StoreStatus], float | None]) -> Callable[[PartitionStatus], Value]:
    return lambda status: {store.name: value(store) for store in status.stores}


SHOWN: Sequence[Shown] = (
    Shown(
        "snapreplay_partition_phase",
        "1 for the present phase, 0 for every other phase.",
        lambda status: {phase.value: float(status.phase is phase) for phase in Phase},
        "phase",
    ),
    Shown(
        "snapreplay_paused",
        "1 when the partition is live and paused, else 0; absent unless live.",
        lambda status: float(status.paused_since is not None) if status.phase is Phase.LIVE else None,
    ),
    Shown(
        "snapreplay_state_entries",
        "Entries of each store: `default` if the state is one map, `_timers` and `_periods` for timers, `_calls` for"
        " calls.",
        _stores(lambda store: store.entries),
        "store",
    ),
    Shown(
        "snapreplay_state_bytes",
        "Bytes of encoded keys and values; memory is about 1.6 times this plus 100 per entry.",
        _stores(lambda store: store.size_bytes),
        "store",
    ),
    Shown(
        "snapreplay_state_largest_entry_bytes",
        "Encoded size of the largest entry that this process has loaded from a snapshot or committed: it has a limit.",
        _stores(lambda store: store.largest_entry_bytes),
        "store",
    ),
    Shown(
        "snapreplay_next_due_timestamp_seconds",
        "Stream time, as Unix time, at which the store's next timer or expiry is due."
        " `snapreplay_next_due_timestamp_seconds - on (app, partition) group_left"
        " snapreplay_stream_time_timestamp_seconds` is the distance. Absent if nothing is pending. May be up to a"
        " second too early.",
        _stores(lambda store: None if store.next_due_ms is None else store.next_due_ms / 1000),
        "store",
    ),
    Shown(
        "snapreplay_input_lag_records",
        "Input offsets up to the last stable offset, of all inputs: an upper bound of the records. Absent until known.",
        lag_records,
    ),
    Shown(
        "snapreplay_input_high_watermark_lag_records",
        "Input offsets up to the high watermark, also those behind open transactions. Absent until known.",
        lambda status: _sum([each.lag_to_high_watermark for each in status.inputs]),
    ),
    Shown(
        "snapreplay_stream_time_timestamp_seconds",
        "Stream time as Unix time: the highest record timestamp so far. Absent before the first record.",
        lambda status: None if status.stream_time_ms is None else status.stream_time_ms / 1000,
    ),
    Shown(
        "snapreplay_calls_pending",
        "Calls whose answers are not handled yet, by name.",
        lambda status: {each.name: float(each.pending) for each in status.calls},
        "call",
    ),
    Shown(
        "snapreplay_calls_failures",
        "Failed attempts of the call in a row, in this process. From 10 on, one attempt at a time is made.",
        lambda status: {each.name: float(each.failures) for each in status.calls},
        "call",
    ),
    Shown("snapreplay_timers_pending", "Pending timers of keys.", lambda status: status.timers_pending),
    Shown("snapreplay_batch", "Number of the last committed batch.", lambda status: status.batch),
    Shown(
        "snapreplay_owner_epoch",
        "Offset of this owner's claim; grows with each owner.",
        lambda status: status.owner_epoch,
    ),
    Shown(
        "snapreplay_restore_attempt",
        "Number of the attempt in the running or last recovery, from 1.",
        lambda status: status.restore.attempts if status.restore else None,
    ),
    Shown(
        "snapreplay_restore_progress_ratio",
        "Progress towards LIVE, 0 to 1: the snapshot is the first half, later batches the second. Absent when FAILED.",
        _restore_ratio,
    ),
    Shown(
        "snapreplay_snapshot_last_timestamp_seconds",
        "Unix time of the newest full snapshot that a committed increment points to; absent before the first.",
        lambda status: _timestamp(status.last_pointed_snapshot_at),
    ),
    Shown(
        "snapreplay_recoverable",
        "1 if a recovery would succeed now, else 0; checked once a minute. While not live: 0 if the state is only in"
        " memory, else absent.",
        lambda status: None if status.recoverable is None else float(status.recoverable),
    ),
    Shown(
        "snapreplay_restore_objective_seconds",
        "`restore.objective_seconds`; absent if it is not set.",
        lambda status: status.objective.seconds if status.objective else None,
    ),
    Shown(
        "snapreplay_restore_predicted_seconds",
        "Predicted duration of a restore now, from fencing to live; updated twice a second with an objective, else once"
        " a minute.",
        predicted_seconds,
    ),
    Shown(
        "snapreplay_blocked_records",
        "Offsets of inputs and increments topic behind a transaction that has been open for more than a minute.",
        lambda status: float(sum(each.offsets for each in status.blocked_by_open_transaction)),
    ),
    Shown(
        "snapreplay_blocking_transaction_timestamp_seconds",
        "Unix time of the start of the transaction that holds back the topic; if it hangs, of its last record. Absent"
        " if there is none, or if the brokers do not say.",
        lambda status: {each.topic: _since(each) for each in status.blocked_by_open_transaction},
        "topic",
    ),
    Shown(
        "snapreplay_partition_updated_timestamp_seconds",
        "Unix time of the last progress.",
        lambda status: _timestamp(status.updated_at) or None,
    ),
    Shown(
        "snapreplay_records_total",
        "Input records applied since this process has owned the partition, without replays.",
        lambda status: status.records_total,
    ),
    Shown(
        "snapreplay_skipped_total",
        "Input records dead-lettered since this process has owned the partition.",
        lambda status: status.skipped_total,
    ),
    Shown(
        "snapreplay_timers_total",
        "Timers fired since this process has owned the partition, without replays.",
        lambda status: status.timers_total,
    ),
    Shown(
        "snapreplay_expired_total",
        "Entries expired since this process has owned the partition, without replays.",
        lambda status: status.expired_total,
    ),
)


class DocumentCollector(Collector):
    """A collector of what a process is, by its document, then of what happened in it."""

    def __init__(self, document: StatusDocument, happened: Collector) -> None:
        self._document = document
        self._happened = happened

    def collect(self) -> Iterator[Metric]:
        facts = self._document.facts
        partitions = [each for each in self._document.partitions if each.phase is not Phase.CLOSED]
        yield from _process_gauges(self._document, len(partitions))
        yield from _copies(facts.app_id, self._document.standbys)
        yield from _copies_given(facts.app_id, self._document.copies, len(partitions))
        for each in SHOWN:
            yield _filled(each, facts.app_id, partitions)
        yield from self._happened.collect()


class ProcessCollector(Collector):
    """The metrics of several apps of a process: each family once, with the samples of all."""

    def __init__(self, documents: Sequence[StatusDocument], happened: Collector) -> None:
        self._documents = documents
        self._happened = happened

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for document in self._documents:
            for family in DocumentCollector(document, CollectorRegistry()).collect():
                if (first := families.setdefault(family.name, family)) is not family:
                    first.samples += family.samples
        yield from families.values()
        yield from self._happened.collect()


class EventsOf(Collector):
    """The events of one of several apps of a process, and those without an app."""

    def __init__(self, app_id: str, happened: Collector) -> None:
        self._app_id = app_id
        self._happened = happened

    def collect(self) -> Iterator[Metric]:
        for family in self._happened.collect():
            family.samples = [each for each in family.samples if each.labels.get("app", self._app_id) == self._app_id]
            yield family


def _process_gauges(document: StatusDocument, assigned: int) -> Iterator[GaugeMetricFamily]:
    facts = document.facts
    labels = {"app": facts.app_id, "version": facts.version, "app_version": facts.app_version, "engine": facts.engine}
    yield _one("snapreplay_build_info", "Always 1; the labels have the versions and the engine.", labels, 1)
    app, ready = {"app": facts.app_id}, all(check.ok for check in document.ready_checks)
    yield _one("snapreplay_partitions_assigned", "Partitions that this process owns.", app, assigned)
    yield _one("snapreplay_ready", "1 when `/readyz` answers 200, else 0.", app, float(ready))
    is_drained = float(facts.drain is not None)
    yield _one("snapreplay_drained", "1 while the process is drained or being drained, else 0.", app, is_drained)


def _copies(app: str, copies: Sequence[StandbyStatus]) -> Iterator[Metric]:
    held = GaugeMetricFamily(
        "snapreplay_standbys",
        "Warm copies that this process holds, by state: `loading`, `warm`, `ahead`.",
        labels=("app", "state"),
    )
    lag = GaugeMetricFamily(
        "snapreplay_standby_lag_offsets",
        "Offsets of the increments topic between the copy and the last increment, at the copy's last read.",
        labels=PARTITION,
    )
    said = "Digests of the owner that the copy has compared, all equal. Starts at 0 again when the copy starts over."
    compared = CounterMetricFamily("snapreplay_standby_digests_total", said, labels=PARTITION)
    for state in CopyState:
        held.add_metric((app, state), sum(each.state == state for each in copies))
    for each in copies:
        lag.add_metric((app, str(each.partition)), each.lag_offsets)
        compared.add_metric((app, str(each.partition)), each.digests_compared)
    yield from (held, lag, compared)


def _copies_given(app: str, copies: Copies | None, assigned: int) -> Iterator[GaugeMetricFamily]:
    if copies is None:
        return
    missing, labels = copies.wanted - copies.given, {"app": app}
    wanted = (
        "Wanted number of copies of all partitions of this process. This and the next two metrics are absent until"
        " the group's leader has sent them."
    )
    too_few = "Wanted copies that are assigned to no process: there are too few."
    yield _one("snapreplay_copies_wanted", wanted, labels, copies.wanted * assigned)
    yield _one("snapreplay_copies_missing", too_few, labels, missing * assigned)
    on_rack = "Partitions of this process whose copies are all on its own rack, `kafka.client.rack`."
    yield _one("snapreplay_copies_on_owners_rack", on_rack, labels, copies.on_owners_rack)


def _one(name: str, says: str, labels: Mapping[str, str], value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, says, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _filled(shown: Shown, app_id: str, partitions: Sequence[PartitionStatus]) -> Metric:
    family_of = CounterMetricFamily if shown.name.endswith("_total") else GaugeMetricFamily
    labels = (*PARTITION, shown.label) if shown.label else PARTITION
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

"""Every metric: name, type, unit, labels. docs/metrics.md explains each; a test compares.

There are two kinds. What *is* (phase, lag, sizes) is read from the status when Prometheus asks, so it is never
stale: `partition_gauges.py`. What *happens* (batches, snapshots, restores) is counted where it happens: `counters.py`.

Seconds, bytes and ratios 0 to 1 only; labels are `app`, `partition` and words of a fixed small set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from snapreplay.service.control.counters import PARTITION
from snapreplay.service.control.partition_gauges import SHOWN, Shown
from snapreplay.service.control.protocol import StatusDocument
from snapreplay.service.control.status import PartitionStatus, StandbyStatus
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.phase import CopyState, Phase


class DocumentCollector(Collector):
    """A collector of what a process is, by its document, then of what happened in it."""

    def __init__(self, document: StatusDocument, happened: CollectorRegistry) -> None:
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


def _process_gauges(document: StatusDocument, assigned: int) -> Iterator[GaugeMetricFamily]:
    facts = document.facts
    labels = {"app": facts.app_id, "version": facts.version, "app_version": facts.app_version}
    yield _one("snapreplay_build_info", "Always 1: which versions run here.", labels, 1)
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
        "Offsets of the increments topic between the copy and the last increment, when the copy last looked.",
        labels=PARTITION,
    )
    said = (
        "Digests of the owner that the copy has compared, all equal. It grows with each batch of a map, and begins anew"
        " when the copy starts over."
    )
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
        "Copies that the partitions of this process are to have, together. This one and the next two are absent while"
        " the leader of the group has not said."
    )
    too_few = "Of the wanted copies, those that are given to no process: there are too few."
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

"""Metrics of one process, carried to another one that shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric

from snapreplay.service.control.document import Family


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

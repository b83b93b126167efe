"""OpenTelemetry's spans of batches, recoveries with their phases, and snapshots. A span is made when the work is over,
so a crash leaves none open. Needs `snapreplay[otel]`; the program sets up the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, get_current_span, get_tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from snapreplay.app.record import Headers
from snapreplay.service.clock import wall_time
from snapreplay.service.control.status import RecoveryStatus, SnapshotStatus

Facts = Mapping[str, str | int]

LINKS_MAX = 128
"""OpenTelemetry's default limit."""

_propagator = TraceContextTextMapPropagator()


class Spans:
    """Makes the spans of one partition."""

    def __init__(self, app_id: str, partition: int) -> None:
        self._tracer = get_tracer("snapreplay")
        self._partition: Facts = {"snapreplay.app": app_id, "snapreplay.partition": partition}

    def batch(self, number: int, records: int, seconds: float, contexts: Sequence[Headers]) -> None:
        """Make the span of a batch whose commit was just answered. Its links lead to the traces of its records."""
        ended = wall_time()
        distinct = islice(dict.fromkeys(contexts), LINKS_MAX)
        links = [link for link in map(_link, distinct) if link is not None]
        counts = {"snapreplay.batch": number, "messaging.batch.message_count": records}
        self._span("batch", ended - timedelta(seconds=seconds), ended, counts, links=links)

    def recovery(self, restore: RecoveryStatus) -> None:
        """Make the span of a recovery that has led to LIVE, with a child for each of its phases, as entered."""
        began, ended = restore.started_at or wall_time(), restore.finished_at or wall_time()
        facts: Facts = {
            "snapreplay.mode": restore.mode or "",
            "snapreplay.warm": restore.warm or "",
            "snapreplay.attempts": restore.attempts,
        }
        whole = self._span("recovery", began, ended, facts)
        for phase, seconds in restore.seconds_per_phase.items():
            left = began + timedelta(seconds=seconds)
            self._span(phase, began, left, {}, parent=whole)
            began = left

    def snapshot(self, status: SnapshotStatus) -> None:
        """Make the span of a snapshot that was written, or failed."""
        facts: Facts = {
            "snapreplay.batch": status.batch,
            "snapreplay.reason": status.reason,
            "snapreplay.size_bytes": status.size_bytes,
        }
        self._span("snapshot", status.started_at, status.finished_at or wall_time(), facts, status.error)

    def _span(
        self,
        name: str,
        began: datetime,
        ended: datetime,
        facts: Facts,
        error: str | None = None,
        *,
        links: Sequence[Link] = (),
        parent: Span | None = None,
    ) -> Span:
        span = self._tracer.start_span(
            f"snapreplay.{name}",
            Context() if parent is None else set_span_in_context(parent, Context()),
            SpanKind.CONSUMER if name == "batch" else SpanKind.INTERNAL,
            {**self._partition, **facts},
            links,
            _ns(began),
        )
        if error:
            span.set_status(StatusCode.ERROR, error)
        span.end(_ns(ended))
        return span


def _ns(time: datetime) -> int:
    return int(time.timestamp() * 1_000_000) * 1000


def _link(context: Headers) -> Link | None:
    """Return the link to a trace context; None: the context is not valid."""
    carrier = {name: (data or b"").decode("ascii", "replace") for name, data in context}
    found = get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    return Link(found) if found.is_valid else None

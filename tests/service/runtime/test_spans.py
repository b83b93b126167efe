"""Tests of traces on a real broker: carried headers, and spans by OpenTelemetry's own SDK."""

import asyncio

import pytest
from confluent_kafka import Producer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from snapreplay.service.clock import wall_time
from snapreplay.service.control.status import SnapshotState, SnapshotStatus
from snapreplay.service.runtime.spans import Spans
from tests.service.conftest import stage
from tests.support import apps
from tests.support.stage import processed, snapshot

__all__ = ["stage"]

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = [("traceparent", f"00-{TRACE}-{SPAN}-01".encode()), ("tracestate", b"vendor=1")]


@pytest.fixture(scope="module")
def provider():
    exporter, made = InMemorySpanExporter(), TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(made)
    yield exporter
    made.shutdown()


@pytest.fixture
def exporter(provider):
    provider.clear()
    return provider


def feed(servers, topic, count):
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, b'{"amount": 1}', b"k%d" % number, 0, headers=[*CONTEXT] if number % 2 else [])
    assert producer.flush(30) == 0


async def test_a_trace_goes_through_the_app_and_its_spans_lead_to_it(stage, unique, exporter):
    """Outputs have the headers of their record; a batch links to its traces; a recovery has its phases as children. A
    replay with carrying off agrees with what was committed."""
    here = await stage(apps.ledger(unique("traced")), tracing="spans")
    async with here.running() as service:
        await asyncio.to_thread(feed, here.bootstrap_servers, here.input, 10)
        await processed(service, {0: 10})
        await snapshot(service)
        await asyncio.to_thread(feed, here.bootstrap_servers, here.input, 2)
        await processed(service, {0: 12})
    (outputs,) = await here.read(here.output)
    assert [list(each.headers) for each in outputs] == [CONTEXT if n % 2 else [] for n in range(12)]
    spans = exporter.get_finished_spans()
    batches = [each for each in spans if each.name == "snapreplay.batch"]
    assert sum(each.attributes["messaging.batch.message_count"] for each in batches) == 12
    assert {
        (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for each in batches for link in each.links
    } == {(TRACE, SPAN)}
    (recovery,) = [each for each in spans if each.name == "snapreplay.recovery"]
    stages = [each for each in spans if each.parent and each.parent.span_id == recovery.context.span_id]
    assert [each.name for each in stages][:3] == ["snapreplay.fencing", "snapreplay.claiming", "snapreplay.locating"]
    assert "snapreplay.snapshot" in {each.name for each in spans}
    assert all(each.start_time <= each.end_time for each in spans)
    restore = await here.restored(tracing="off", restore={"mode": "replay"})
    assert (restore.mode, restore.records_replayed) == ("replay", 2)


def test_a_failed_snapshot_says_why(exporter):
    """Its span has the status of an error."""
    now = wall_time()
    Spans("ledger", 0).snapshot(SnapshotStatus(0, "id", SnapshotState.FAILED, "time", 7, now, now, error="no leader"))
    (span,) = exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "no leader")


def test_a_context_that_is_not_of_w3c_is_no_link(exporter):
    """It was carried as it is; a trace that does not exist has no link."""
    Spans("ledger", 0).batch(7, 1, 0.5, [(("traceparent", b"\xff"),), ((CONTEXT[0]),), ((CONTEXT[0]),)])
    (span,) = exporter.get_finished_spans()
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE]

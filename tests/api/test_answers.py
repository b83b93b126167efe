"""Answers that are given again, and HEAD."""

import asyncio

import msgspec
import pytest
from fastapi.testclient import TestClient

from snapreplay.api.app import KEPT_MAX, KeptAnswers, create_app
from snapreplay.service.control.counters import PartitionMetrics
from tests.support.fake_control import LIVE, NOW, FakeControl, Local, ago

PATHS = ("/healthz", "/readyz", "/api/v1", "/restore-status", "/openapi.json", "/nowhere")


class Still(Local):
    """The same document again and again, until `look_again`."""

    def __init__(self, control):
        super().__init__(control)
        self.look_again()

    def look_again(self):
        self._status = self._control.document()

    async def look(self):
        return self._status


@pytest.mark.parametrize("path", PATHS)
def test_head_is_get_without_a_body(client, path):
    """With the same status and the same headers, the length of the body included."""
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code
    assert dict(head.headers) == dict(got.headers)
    assert int(head.headers["content-length"]) > 0
    assert head.content == b""


def test_a_document_is_rendered_once():
    """For any number of clients; in another format, and after a change, it is rendered again."""
    control, happening = FakeControl(), PartitionMetrics("ledger", 0)
    source = Still(control)
    client = TestClient(create_app(source, now=lambda: NOW))
    first = client.get("/metrics")
    happening.fenced()
    assert client.get("/metrics").content == first.content
    other = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert other.headers["content-type"] != first.headers["content-type"]
    for number in range(KEPT_MAX):
        client.get(f"/openapi.json?{number}")
    control.statuses = {}
    source.look_again()
    renewed = client.get("/metrics")
    happening.fenced()
    assert client.get("/metrics").content == renewed.content != first.content


async def test_an_answer_is_kept_for_the_document_that_it_was_made_of():
    """A newer document may come while it is made."""
    control, made = FakeControl(), asyncio.Event()
    source = Still(control)
    bodies = [b"of the first", b"of the second"]

    async def app(_scope, _receive, send):
        body = bodies.pop(0)
        if bodies:
            await made.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    answers = KeptAnswers(app, source)

    async def got(path):
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
        await answers(scope, asyncio.Queue().get, send)
        return sent[-1]["body"]

    first = asyncio.create_task(got("/metrics"))
    await asyncio.sleep(0)
    source.look_again()
    assert await got("/readyz") == b"of the second"
    made.set()
    assert await first == b"of the first"
    bodies.append(b"of the second, too")
    assert await got("/metrics") == b"of the second, too"


def test_handlers_take_the_clock_from_the_application():
    """Ages follow the clock given to create_app, asked again for every request."""
    control = FakeControl([msgspec.structs.replace(LIVE, updated_at=NOW)])
    moment = NOW
    client = TestClient(create_app(Local(control), now=lambda: moment))
    for seconds in (1, 5):
        moment = ago(-seconds)
        assert client.get("/api/v1/partitions/0").json()["progress_age_seconds"] == seconds

"""HTTP over an in-memory `Control`: in process, and on a real port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from snapreplay.api.app import create_app
from snapreplay.api.server import HttpServer
from tests.support.deadlines import scaled
from tests.support.fake_control import NOW, FakeControl


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def client(control: FakeControl) -> TestClient:
    """In process; an unexpected error is answered, not raised into the test."""
    return TestClient(create_app(control, now=lambda: NOW), raise_server_exceptions=False)


@pytest.fixture
def url(control: FakeControl) -> Iterator[str]:
    """The same `control` on a real port, served as the service does it: in a thread with a loop."""
    bound: list[str] = []
    ready, finish = threading.Event(), threading.Event()

    async def serve() -> None:
        server = HttpServer(on_bound=lambda address: bound.append(address.url))
        await server.serve(control, "127.0.0.1", 0)
        ready.set()
        await asyncio.to_thread(finish.wait)
        await server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(timeout=scaled(20)), "HTTP did not start"
    yield bound[0]
    finish.set()
    thread.join()

"""HTTP over an in-memory `Control`: in process, and on a real port."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from snapreplay.api.app import create_app
from snapreplay.api.server import HttpServer
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.service.config.groups import HttpSettings
from tests.support.deadlines import scaled
from tests.support.fake_control import NOW, FakeControl, Local


class Current:
    """The `control` that the test has, whichever it is: one server is asked about one after the other."""

    def __init__(self) -> None:
        self.control = FakeControl()  # somebody may ask before the first test

    def __getattr__(self, name: str) -> Any:
        return getattr(self.control, name)


@pytest.fixture
def free_port() -> int:
    """A port for a process of the test to listen at. The system gives it to no connection before."""
    return free_ports(1)[0]


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture(scope="session")
def in_process() -> tuple[Current, TestClient]:
    """An unexpected error is answered, not raised into the test."""
    current = Current()
    source = Local(current)
    app = create_app(source, now=lambda: NOW)
    return current, TestClient(app, raise_server_exceptions=False)


@pytest.fixture
def client(in_process: tuple[Current, TestClient], control: FakeControl) -> TestClient:
    """Asks `control` without a port."""
    in_process[0].control = control
    return in_process[1]


@pytest.fixture(scope="session")
def served() -> Iterator[tuple[Current, str]]:
    """HTTP on a real port, served as the service does it: in a thread with a loop."""
    bound: list[str] = []
    current, ready, finish = Current(), threading.Event(), threading.Event()

    async def serve() -> None:
        server = HttpServer(on_bound=lambda address: bound.append(address.url))
        await server.serve(current, HttpSettings(port=0))
        ready.set()
        await asyncio.to_thread(finish.wait)
        await server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(timeout=scaled(20)), "HTTP did not start"
    yield current, bound[0]
    finish.set()
    thread.join()


@pytest.fixture
def url(served: tuple[Current, str], control: FakeControl) -> str:
    """Say where `control` answers."""
    served[0].control = control
    return served[1]

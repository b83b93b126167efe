"""HTTP on a real port, inside a loop that is not uvicorn's."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time

import httpx2
import pytest

from snapreplay import running
from snapreplay.api.server import HttpServer
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from tests.support import apps
from tests.support.fake_control import FakeControl
from tests.support.stage import settings_for


async def test_serves_on_a_free_port_and_closes():
    """Port 0 gives a real port that answers at once, and is free again after close, which may be repeated. No signal
    handler is installed: the service decides what SIGTERM means."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    server = HttpServer()
    await server.close()
    address = await server.serve(FakeControl(), HttpSettings(port=0))
    assert before == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert address.port > 0
    async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
        assert (await client.get("/healthz")).status_code == 200
    await server.close()
    await server.close()
    with socket.create_server(("127.0.0.1", address.port)):
        pass


async def test_answers_do_not_wait_for_an_acknowledgement():
    """Headers and body are two writes: without TCP_NODELAY the second one waits for 40 ms."""
    server = HttpServer()
    address = await server.serve(FakeControl(), HttpSettings(port=0))
    async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
        await client.get("/healthz")
        seconds = []
        for _ in range(20):
            began = time.monotonic()
            await client.get("/healthz")
            seconds.append(time.monotonic() - began)
    await server.close()
    assert min(seconds) < 0.03


async def test_taken_port_is_refused_by_name():
    """Two services on one port: the second names the port and the option."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError) as refused:
            await HttpServer().serve(FakeControl(), HttpSettings(port=port))
    assert str(port) in refused.value.message
    assert "--http-port" in refused.value.hint


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_impossible_address_is_refused(host):
    """An address that is not of this machine is a usage error, not an OSError."""
    with pytest.raises(UsageError, match="HTTP cannot be served"):
        await HttpServer().serve(FakeControl(), HttpSettings(host=host, port=0))


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("frozen", True, "frozen"),
        ("executable", "", "sys.executable"),
        ("executable", None, "sys.executable"),
    ],
)
async def test_a_program_without_an_interpreter_is_refused_by_name(monkeypatch, name, value, cause):
    """Its executable is the program itself, which would start once more, with the same group and the same names."""
    monkeypatch.setattr(sys, name, value, raising=False)
    with pytest.raises(UsageError, match=cause) as refused:
        await HttpServer().serve(FakeControl(), HttpSettings(port=0))
    assert "http=None" in refused.value.hint
    async with running(apps.ledger("frozen"), settings_for("127.0.0.1:1"), None) as service:
        assert service.http_address is None


async def test_close_does_not_wait_for_idle_connections():
    """A keep-alive connection that nobody uses does not delay the end."""
    server = HttpServer()
    address = await server.serve(FakeControl(), HttpSettings(port=0))
    async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
        await client.get("/healthz")
        async with asyncio.timeout(10):
            await server.close()

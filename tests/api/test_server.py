"""HTTP on a real port, inside a loop that is not uvicorn's."""

from __future__ import annotations

import asyncio
import signal
import socket
import time

import httpx2
import pytest

from snapreplay.api.server import HttpServer
from snapreplay.errors import UsageError
from tests.support.fake_control import FakeControl


async def test_serves_on_a_free_port_and_closes():
    """Port 0 gives a real port that answers at once, and is free again after close, which may be repeated. No signal
    handler is installed: the service decides what SIGTERM means."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    server = HttpServer()
    await server.close()
    address = await server.serve(FakeControl(), "127.0.0.1", 0)
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
    address = await server.serve(FakeControl(), "127.0.0.1", 0)
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
            await HttpServer().serve(FakeControl(), "127.0.0.1", port)
    assert str(port) in refused.value.message
    assert "--http-port" in refused.value.hint


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_impossible_address_is_refused(host):
    """An address that is not of this machine is a usage error, not an OSError."""
    with pytest.raises(UsageError, match="HTTP cannot be served"):
        await HttpServer().serve(FakeControl(), host, 0)


async def test_close_does_not_wait_for_idle_connections():
    """A keep-alive connection that nobody uses does not delay the end."""
    server = HttpServer()
    address = await server.serve(FakeControl(), "127.0.0.1", 0)
    async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
        await client.get("/healthz")
        async with asyncio.timeout(10):
            await server.close()

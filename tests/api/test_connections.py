"""HTTP under connections that mean harm, and what it answers to others meanwhile."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from snapreplay.api import serving
from snapreplay.api.server import bind
from snapreplay.api.serving import Server
from tests.support.deadlines import scaled, within
from tests.support.waiting import eventually

HALF = b"GET /metrics HTTP/1.1\r\nHost: loc"
SLOW_BODY = (
    b"POST /trigger-snapshot HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 90000\r\n\r\n{"partitions'
)
PIPELINED = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
TWO_LENGTHS = (
    b"POST /trigger-snapshot HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
)


def connected(url: str, client: str = "127.0.0.1") -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=scaled(30), source_address=(client, 0))


def is_closed(client: socket.socket) -> bool:
    """Say whether it is closed, once everything is read that came before."""
    try:
        while client.recv(1 << 20):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


@pytest.fixture(params=[HALF, SLOW_BODY, PIPELINED], ids=["half-open", "slow body", "never read"])
def harmful(request, url: str) -> Iterator[list[socket.socket]]:
    """More connections than are served at once."""
    opened = []
    for _ in range(serving.CONNECTIONS_MAX + 100):
        each = connected(url)
        each.setblocking(False)
        with suppress(OSError):  # it is closed already, because others came
            each.send(request.param)
        opened.append(each)
    yield opened
    for each in opened:
        each.close()


def test_probes_answer_beside_connections_that_mean_harm(harmful, url):
    """None of ten is refused or late, though all places are taken: the oldest connections are closed. A process that
    is suspended on a busy machine delays one."""
    seconds = []
    for _ in range(10):
        began = time.monotonic()
        assert httpx2.get(f"{url}/healthz", trust_env=False).status_code == 200
        seconds.append(time.monotonic() - began)
    assert sorted(seconds)[-2] < scaled(2)
    assert sum(is_closed(each) for each in harmful) >= 100


def test_a_crowd_of_one_address_pushes_out_no_other_address(url):
    """However many come: the client with the most connections loses the oldest."""
    with connected(url) as first, ExitStack() as crowd:
        first.sendall(HALF)
        others = [crowd.enter_context(connected(url, "127.0.0.2")) for _ in range(serving.CONNECTIONS_MAX + 50)]
        for each in others:
            each.setblocking(False)
        eventually(lambda: sum(is_closed(each) for each in others) >= 50, "the oldest of the crowd closed")
        first.sendall(b"alhost\r\n\r\n")
        assert first.recv(100).startswith(b"HTTP/1.1 200 ")


NO_HTTP = {
    "TLS": b"\x16\x03\x01\x00\xf4\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "long headers": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000,
    "unknown encoding": b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    "no chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no chunk after an answer": b"POST /nowhere HTTP/1.1\r\nHost: x\r\nOrigin: y\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("name", NO_HTTP)
def test_what_is_no_http_is_refused(url, name: str, caplog):
    """And the connection is closed, without a word in the log: anybody could fill it."""
    with connected(url) as client:
        client.sendall(NO_HTTP[name])
        answer = client.recv(65536)
        if "after" in name:
            client.sendall(b"zz\r\n")
        while part := client.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 4")
    # Spans of earlier tests end in this process, too.
    ours = (each for each in caplog.records if not each.name.startswith("opentelemetry."))
    assert [each.message for each in ours if each.levelno >= logging.WARNING] == []


async def test_a_probe_begins_before_the_requests_that_have_come_before_it():
    """One of them begins in each turn of the loop, a probe at once: however many there are, it waits for a few."""
    begun, all_have = [], asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        if len(begun) == 100:
            all_have.set()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    server = Server(app)
    with bind("127.0.0.1", 0) as listener, ExitStack() as opened:
        url = "http://{}:{}".format(*listener.getsockname())
        for path in ["/metrics"] * 99 + ["/healthz"]:
            opened.enter_context(connected(url)).sendall(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        server.listen(listener)
        async with within(20):
            await all_have.wait()
        await server.close(scaled(30))
    assert begun.index("/healthz") < 60


def sends_on(slow: socket.socket) -> bool:
    """Send a byte more; say whether the connection was still open."""
    slow.settimeout(0.2)
    try:
        slow.sendall(b"x")
        return bool(slow.recv(1000))
    except TimeoutError:
        return True
    except OSError:
        return False


@asynccontextmanager
async def served_here(app: ASGIApp) -> AsyncIterator[tuple[str, Server]]:
    """Serve an application in the loop of the test."""
    server, listener = Server(app), bind("127.0.0.1", 0)
    server.listen(listener)
    try:
        yield "http://{}:{}".format(*listener.getsockname()), server
    finally:
        await server.close(scaled(30))


async def reads(_: Scope, receive: Receive, __: Send) -> None:
    """An application that answers when it has the whole body."""
    while (await receive()).get("more_body"):
        pass


async def test_a_request_has_a_deadline(monkeypatch):
    """Its header, and its body: a client that keeps sending a byte now and then gains nothing."""
    monkeypatch.setattr(serving, "EXCHANGE_SECONDS", 1.0)
    async with served_here(reads) as (url, _):
        with connected(url) as header, connected(url) as body:
            header.sendall(HALF)
            body.sendall(SLOW_BODY)
            slow = [header, body]
            async with within(30):
                while slow:
                    slow = [each for each in slow if await asyncio.to_thread(sends_on, each)]


def test_two_lengths_are_refused_on_the_wire(url):
    """And the connection is closed: what follows may be a request that somebody has smuggled."""
    with connected(url) as client:
        client.sendall(TWO_LENGTHS)
        answer = b""
        while part := client.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"two-lengths" in answer

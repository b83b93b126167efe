"""A real HTTP process under connections that mean harm, and what it answers to others meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx2
import pytest

from snapreplay.api import limits
from tests.support.deadlines import scaled

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


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=scaled(30))


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
    for _ in range(limits.CONNECTIONS_MAX + 100):
        each = connected(url)
        each.setblocking(False)
        with suppress(OSError):  # it is closed already, because others came
            each.send(request.param)
        opened.append(each)
    yield opened
    for each in opened:
        each.close()


def test_probes_answer_beside_connections_that_mean_harm(harmful, url):
    """None of ten is refused or late, though all places are taken: the oldest connections are closed."""
    for _ in range(10):
        began = time.monotonic()
        assert httpx2.get(f"{url}/healthz", trust_env=False).status_code == 200
        assert time.monotonic() - began < scaled(2)
    assert sum(is_closed(each) for each in harmful) >= 100


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


def test_a_request_has_a_deadline(url):
    """Its header, and its body: a client that goes on sending a byte now and then gains nothing."""
    with connected(url) as header, connected(url) as body:
        header.sendall(HALF)
        body.sendall(SLOW_BODY)
        began, slow = time.monotonic(), [header, body]
        while slow:
            slow = [each for each in slow if sends_on(each)]
            assert time.monotonic() - began < scaled(20)


def test_two_lengths_are_refused_on_the_wire(url):
    """And the connection is closed: what follows may be a request that somebody has smuggled."""
    with connected(url) as client:
        client.sendall(TWO_LENGTHS)
        answer = b""
        while part := client.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"two-lengths" in answer

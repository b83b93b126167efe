"""HTTP inside an asyncio loop that already runs: the service owns loop and signals, not uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

import uvicorn

from snapreplay.api.address import Address
from snapreplay.api.app import create_app
from snapreplay.errors import UsageError
from snapreplay.service.control.protocol import Control


class HttpServer:
    """The HTTP API, for `run` and `running`. A service calls `serve` and `close`, once each, in the same loop."""

    def __init__(self, on_bound: Callable[[Address], None] | None = None) -> None:
        """`on_bound`: called with the address as soon as requests are accepted; None: nobody is told."""
        self._on_bound = on_bound
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def serve(self, control: Control, host: str, port: int) -> Address:
        """Bind and answer; returns once requests are accepted. Port 0 picks a free port.

        Raises:
            UsageError: the port is taken or not allowed, or the host is no address of this machine.
        """
        listener = _bind(host, port)
        config = uvicorn.Config(
            create_app(control),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve([listener]), name="http")
        await self._server.accepting.wait()
        address = Address(*listener.getsockname()[:2])
        if self._on_bound:
            self._on_bound(address)
        return address

    async def close(self) -> None:
        """Finish the running requests, within at most 2 seconds. Idempotent."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        await self._task
        self._server = self._task = None


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process belongs to the service."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise _refused(host, port, error) from error
    listener.setblocking(False)
    # Accepted connections inherit it. asyncio sets it only on sockets that name their protocol, which
    # these do not. Headers and body are two writes, and the second one waited 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _refused(host: str, port: int, error: OSError) -> UsageError:
    another = "choose another port with --http-port N (0 picks a free one)"
    if error.errno == errno.EADDRINUSE:
        return UsageError(
            f"port {port} on {host} is taken: HTTP cannot be served there",
            hint=another,
            host=host,
            port=port,
        )
    if error.errno == errno.EACCES:
        return UsageError(
            f"port {port} on {host} is not allowed for this user",
            hint=another,
            host=host,
            port=port,
        )
    return UsageError(
        f"HTTP cannot be served on {host!r} port {port}: {error}",
        hint="http.host must be an address of this machine",
        host=host,
        port=port,
    )

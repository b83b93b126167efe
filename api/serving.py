"""Serves the application, in the loop of HTTP's thread: accepts connections, bounds what each of them takes, and ends
them. uvicorn speaks HTTP on each of them.

Connections are accepted here and not by asyncio's server, which shows a connection only after its TLS handshake, and
logs a traceback for each one that it cannot accept because no file is free.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from snapreplay.api.credentials import Contexts, subject
from snapreplay.api.events import PATH as EVENTS
from snapreplay.api.probing import WITHOUT_TOKEN
from snapreplay.api.server import close_in_forks
from snapreplay.service.runtime.tasks import watched

if TYPE_CHECKING:  # the service does not wait for a web framework
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_uvicorn = logging.getLogger("snapreplay.http.uvicorn")
_uvicorn.setLevel(logging.ERROR)  # a bad request is the client's matter

CERTIFICATE = "certificate"
"""The key of a connection's state for whose certificate TLS has verified."""
PROBES_PORT = "probes_port"
"""Is in the state of a connection to `http.probes_port`."""
NO_FILE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_FILE_SECONDS = 0.05
SWEEP_SECONDS = 1.0
NO_STATE: Mapping[str, Any] = {}

# ---- what clients can take of the process: connections, files, memory, time

CONNECTIONS_MAX = 128
EXCHANGE_SECONDS = 10.0
"""For a request with its response, read by the client; also for a TLS handshake."""
UNREAD_BYTES = 16 * 1024
KERNEL_BYTES = 64 * 1024
"""Of a response that is not read. Without it the kernel takes 2.5 MB for each connection (measured)."""


def files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_max() -> int:
    """Return how many connections of one sort may be open: requests of clients, streams to them, or to peers."""
    return max(1, min(CONNECTIONS_MAX, files_max() // 8))


def accepted_at_once() -> int:
    """Return how many connections are accepted in one turn of the loop. A request is answered before as many newer ones
    have come as push it out."""
    return max(1, connections_max() // 16)


def files_are_short(highest: int) -> bool:
    """Say whether the process has nearly as many files open as it may, by the highest number of a connection, because
    the kernel gives the lowest that is free. The last quarter is for Kafka."""
    return highest >= files_max() * 3 // 4


class Server:
    """Serves one application at any number of ports."""

    def __init__(self, app: ASGIApp) -> None:
        self._config = Config(
            cast("Any", app),
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            server_header=False,
            date_header=False,  # see `_sweep`
            proxy_headers=False,  # a client on this machine could choose the address that the log names
            timeout_keep_alive=int(EXCHANGE_SECONDS),
        )
        self._config.load()
        self._state = ServerState()
        self._ports: list[Port] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._sweeping = _begun(self._sweep())

    @property
    def connections(self) -> set[HttpConnection]:
        """The open ones whose TLS handshake is over."""
        return cast("set[HttpConnection]", self._state.connections)

    def listen(
        self, listener: socket.socket, state: Mapping[str, Any] = NO_STATE, contexts: Contexts | None = None
    ) -> None:
        """Answer at this port, which is closed at the end.

        Args:
            state: put into the scope of each request at this port.
            contexts: of TLS; None: without.
        """
        port = Port(listener, self._config, self._state, state, contexts)
        self._ports.append(port)
        self._accepting.append(_begun(port.accept()))

    async def close(self, within_seconds: float) -> None:
        """Finish the running requests within so many seconds, then end all."""
        for task in self._accepting:
            task.cancel()
        await asyncio.wait(self._accepting)
        for port in self._ports:
            port.close()
        for each in tuple(self.connections):
            with suppress(h11.LocalProtocolError):  # what it has sent was no HTTP
                each.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=within_seconds)
        self._sweeping.cancel()
        for each in (*self.connections, *(each for port in self._ports for each in port.open)):
            each.abort()

    async def _sweep(self) -> None:
        """Close connections that are too old, and tell uvicorn the time."""
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            for port in self._ports:
                port.sweep()
            await asyncio.sleep(SWEEP_SECONDS)


def _begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return watched(asyncio.get_running_loop().create_task(work), "HTTP")


class Port:
    """The connections to one port. At most `connections_max()` are open beside the streams of events. A further one
    closes another one of the address that has the most: the longest idle one."""

    def __init__(
        self,
        listener: socket.socket,
        config: Config,
        server: ServerState,
        state: Mapping[str, Any],
        contexts: Contexts | None,
    ) -> None:
        self._listener = _tuned(listener)
        self._make: Callable[[str], HttpConnection] = lambda address: HttpConnection(
            self, address, config, server, state
        )
        self._contexts = contexts
        self.turn = asyncio.Lock()
        """Who has it begins a request."""
        self.open: set[HttpConnection] = set()

    async def accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(accepted_at_once()):
                try:
                    taken, address = await loop.sock_accept(self._listener)
                except OSError as error:
                    if error.errno in NO_FILE:
                        self._make_room(files_max())
                        await asyncio.sleep(NO_FILE_SECONDS)
                    continue
                self._make_room(taken.fileno())
                connection = self._make(address[0])
                connection.file_number = taken.fileno()
                self.open.add(connection)
                connection.establishing = loop.create_task(self._establish(connection, close_in_forks(taken)))
            await asyncio.sleep(0)

    def close(self) -> None:
        self._listener.close()

    def sweep(self) -> None:
        oldest = asyncio.get_running_loop().time() - EXCHANGE_SECONDS
        for each in tuple(self.open):
            if each.since < oldest:
                each.abort()

    def _make_room(self, newest: int) -> None:
        """End the oldest connection of the busiest address, where one too many is open. `newest`: the number of the
        newest file."""
        others = [each for each in self.open if not each.is_stream]
        highest = max([newest, *(each.file_number for each in others)])
        if others and (len(others) >= connections_max() or files_are_short(highest)):
            of_address = Counter(each.address for each in others)
            min(others, key=lambda each: (-of_address[each.address], each.since)).abort()

    async def _establish(self, connection: HttpConnection, taken: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        tls = {"ssl": self._contexts(), "ssl_handshake_timeout": EXCHANGE_SECONDS} if self._contexts else {}
        try:
            with suppress(OSError):  # a handshake that fails is the client's matter
                await loop.connect_accepted_socket(lambda: connection, taken, **cast("Any", tls))
        finally:
            if connection.transport is None:
                self.open.discard(connection)
                taken.close()


class HttpConnection(H11Protocol):
    """One connection of a client. Probes are answered at once. Other requests begin one after the other, one in each
    turn of the loop: so a probe waits for a few of them, however many have come."""

    def __init__(self, port: Port, address: str, config: Config, server: ServerState, state: Mapping[str, Any]) -> None:
        super().__init__(config, server, dict(state))
        self.address = address
        self.since = self.loop.time()
        """When the first request was awaited, or the last response was complete; of a stream, when it was read last."""
        self.is_stream = False
        self.file_number = -1
        self.establishing: asyncio.Task[None] | None = None
        self.logger, self.access_log = _uvicorn, False
        self._port = port
        self._answer, self.app = self.app, cast("Any", self._in_turn)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn types it for any transport; these are TCP
        super().connection_made(transport)
        transport.set_write_buffer_limits(UNREAD_BYTES)
        self.since = self.loop.time()
        self.app_state[CERTIFICATE] = subject(transport.get_extra_info("peercert"))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._port.open.discard(self)

    def abort(self) -> None:
        """End it at once, even if its client waits for an answer."""
        self._port.open.discard(self)
        if self.transport is not None:
            self.transport.abort()
        elif self.establishing is not None:
            self.establishing.cancel()

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in WITHOUT_TOKEN:
            async with self._port.turn:
                await asyncio.sleep(0)
            if self.cycle.disconnected:
                return

        async def read(message: Message) -> None:
            await send(message)  # waits until the client has read most of what was sent before
            self.is_stream = scope["path"] == EVENTS
            if self.is_stream:
                self.since = self.loop.time()

        await self._answer(cast("Any", scope), cast("Any", receive), cast("Any", read))
        self.is_stream, self.since = False, self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, and close. uvicorn's own raises in the middle of a response."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        self.transport.close()


def _tuned(listener: socket.socket) -> socket.socket:
    """Set what accepted connections inherit."""
    listener.setblocking(False)
    # asyncio sets it only on sockets that name their protocol, which these do not. Headers and body are two
    # writes, and the second one waited 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
    # A reader on a machine that is gone would keep its stream for a quarter of an hour.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(EXCHANGE_SECONDS * 1000))
    return listener

"""The work of the HTTP process: answers requests from the service's status, until the service ends.

Probes are answered before the application is imported, so this module and what it imports are few.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from snapreplay.api.early import Early
from snapreplay.api.limits import connections_max
from snapreplay.api.line import Line
from snapreplay.api.probing import WITHOUT_TOKEN
from snapreplay.api.problem_kinds import MEDIA_TYPE, members, no_http
from snapreplay.api.request_queue import RequestQueue
from snapreplay.api.tls import Contexts, TlsFiles, subject
from snapreplay.service.runtime.child_process import go_behind

if TYPE_CHECKING:  # probes wait for this module
    from starlette.types import Receive, Scope, Send

    from snapreplay.api.application import Application
    from snapreplay.api.http_process import Arguments

NICE = 5
"""Where CPU is short, whoever asks over HTTP gets a third of what the service gets. Not before it can answer:
to load the application takes a second of CPU."""


async def serve(arguments: Arguments) -> None:
    """Answer probes at once, and everything else as soon as the application is loaded."""
    line = Line(*await asyncio.open_connection(sock=socket.socket(fileno=arguments.line)))
    logging.basicConfig(level=logging.WARNING, handlers=[_ToService(line)], force=True)
    logging.getLogger("snapreplay.http").setLevel(logging.INFO)  # who did what
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # a bad request is the client's matter
    tls = TlsFiles(*arguments.tls)
    early = Early(line)
    server = Server(early, tls.server() if tls.certificate else None)
    server.hold()
    serving = asyncio.create_task(server.serve([tuned(socket.socket(fileno=arguments.listener))]))
    others = [line.run(), _run(arguments, line, early, server, partial(_loaded, tls=tls))]
    if arguments.probes >= 0:
        others.append(server.also_at(tuned(socket.socket(fileno=arguments.probes)), PROBES))
    tasks = [serving, *map(asyncio.create_task, others)]
    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if early.holds:
        server.abort()
    early.end(in_good_order=line.has_hung_up)
    server.release()
    server.should_exit = True
    await serving
    for each in ended:
        each.result()


async def _run(
    arguments: Arguments, line: Line, early: Early, server: Server, load: Callable[..., Application]
) -> None:
    """Load the application, let it answer, and run it."""
    states = await asyncio.open_connection(sock=socket.socket(fileno=arguments.states))
    await early.quick_restore(arguments.load_after_seconds)
    # In a thread, because the loop answers probes meanwhile.
    application = await asyncio.to_thread(load, arguments, line, states)
    early.replace(application)
    server.release()
    go_behind(NICE)
    await application.run()


def _loaded(*given: Any, **shared: Any) -> Application:
    made: Application = import_module("snapreplay.api.application").Application(*given, **shared)
    return made


class _ToService(logging.Handler):
    def __init__(self, line: Line) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())  # the message alone: the service's log adds level and logger
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        self._line.log(record, self.format(record))


CERTIFICATE = "certificate"
"""Where a connection keeps whose certificate TLS has verified."""
EVENTS = "/api/v1/events"
"""The path of the streams of events."""
PROBES_PORT = "probes_port"
"""Is in the state of a connection to `http.probes_port`."""
ACCEPTED_AT_ONCE = 8
"""In one turn of the loop. It takes three turns until an older one is closed for each: well below the reserve."""
WAITING_MAX = 1024
EXCHANGE_SECONDS = 10.0
UNREAD_BYTES = 16 * 1024
KERNEL_BYTES = 64 * 1024
"""Of a response that nobody reads. Without it the kernel takes 2.5 MB for each connection (measured)."""


class Connection(H11Protocol):
    """One connection of a client. It has `EXCHANGE_SECONDS` for each request with its response, read by the client. A
    stream of events may last, if its client reads. Probes are answered at once; other requests queue."""

    since = 0.0
    """When the first request was awaited, or the last response was complete."""

    def __init__(self, *args: Any, queue: RequestQueue, contexts: Contexts | None = None, **given: Any) -> None:
        """Take `queue`, of this port."""
        super().__init__(*args, **given)
        self.queue = queue
        self._turn: asyncio.Future[None] | None = None
        self._answer, self.app = self.app, self._in_turn
        self._contexts = contexts
        self._handshake: asyncio.Task[None] | None = None
        self._early: list[bytes] | None = None if contexts is None else []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of TCP only
        self._begin(transport)
        self.since = self.loop.time()
        self._make_room()
        if self._contexts is not None:
            # Not by asyncio's server: a client that does not go on with its handshake would be in no list and no limit.
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._secure(transport, self._contexts()))

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(UNREAD_BYTES)

    def _make_room(self) -> None:
        """Close another connection to this port if there are too many. The newest may be a probe's. Of the address that
        has the most, the oldest has waited for its client the longest."""
        others = [each for each in cast("set[Connection]", self.connections) if each.queue is self.queue]
        others = [each for each in others if each is not self and not each.is_stream]
        if len(others) < connections_max():
            return
        of_address = Counter(each.address for each in others)
        _abort(min(others, key=lambda each: (each.is_probe, -of_address[each.address], each.since)))

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in WITHOUT_TOKEN:
            self._turn = self.queue.place()
            await self._turn
            if self.cycle.disconnected:
                return
        await self._answer(cast("Any", scope), cast("Any", receive), cast("Any", send))

    async def _secure(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        secured = None
        if not transport.is_closing():
            with contextlib.suppress(OSError):  # a failed handshake is the client's matter
                secured = await self.loop.start_tls(
                    transport, self, context, server_side=True, ssl_handshake_timeout=EXCHANGE_SECONDS
                )
        if secured is None:
            self.connections.discard(self)
            return
        self._begin(secured)
        self.app_state = {**self.app_state, CERTIFICATE: subject(secured.get_extra_info("peercert"))}
        early, self._early = self._early, None
        for each in early or ():
            self.data_received(each)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._early is None:
            super().data_received(data)
        else:  # the end of the handshake and the first request came at once
            self._early.append(data)

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def is_probe(self) -> bool:
        """Whether a probe waits for the first byte of its answer."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_started and cycle.scope["path"] in WITHOUT_TOKEN

    @property
    def is_stream(self) -> bool:
        """Whether it carries events, which have a bound of their own."""
        cycle = self.cycle
        is_open = cycle is not None and cycle.response_started and not cycle.response_complete
        return is_open and cycle.scope["path"] == EVENTS

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, and close: where the next request begins is not known."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            error = sys.exception()
            # The rest of its text is what came.
            why, status = str(error or msg).partition(": ")[0], getattr(error, "error_status_hint", 400)
            body = msgspec.json.encode(members(no_http(why, status), ""))
            headers = [("content-length", str(len(body))), ("content-type", MEDIA_TYPE), ("connection", "close")]
            head = h11.Response(status_code=status, headers=headers)
            for part in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()


def _abort(connection: Connection) -> None:
    connection.connections.discard(connection)
    connection.transport.abort()


PROBES: Mapping[str, Any] = {PROBES_PORT: True}
"""The state of each connection to the port of the probes."""
NO_STATE: Mapping[str, Any] = {}

TAKE_SECONDS = 0.05
"""Between two looks whether uvicorn has started."""


class Server(uvicorn.Server):
    """A uvicorn server with limits, and without its signal handlers."""

    def __init__(self, app: Any, contexts: Contexts | None = None) -> None:
        self._queues = RequestQueue(), RequestQueue()
        self._connection = partial(Connection, queue=self._queues[0], contexts=contexts)
        self._connection_of_probes = partial(Connection, queue=self._queues[1])
        super().__init__(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", self._connection),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # whoever asks from this machine would choose the address that the log names
                backlog=ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=2,
            )
        )

    def hold(self) -> None:
        """Let all requests but the probes wait until `release`."""
        for each in self._queues:
            each.hold()

    def abort(self) -> None:
        """Close all connections, whatever their clients wait for."""
        for each in tuple(cast("set[Connection]", self.server_state.connections)):
            _abort(each)

    def release(self) -> None:
        for each in self._queues:
            each.release()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(WAITING_MAX)

    async def also_at(self, listener: socket.socket, state: Mapping[str, Any] = NO_STATE) -> None:
        """Answer at one more address, once uvicorn has started, as it does at those that it starts with, until the end.
        With `state`, which each of its connections has, it answers without TLS."""
        made = self._connection_of_probes if state else self._connection

        def connected() -> asyncio.Protocol:
            return made(self.config, self.server_state, {**self.lifespan.state, **state})

        loop = asyncio.get_running_loop()
        while not self.started:  # noqa: ASYNC110 - uvicorn sets it, and tells nobody
            await asyncio.sleep(TAKE_SECONDS)
        self.servers.append(await loop.create_server(connected, sock=listener, backlog=ACCEPTED_AT_ONCE))
        listener.listen(WAITING_MAX)
        await asyncio.Event().wait()

    async def on_tick(self, counter: int) -> bool:
        """Close connections that are too old; called ten times a second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for each in tuple(cast("set[Connection]", self.server_state.connections)):
                if each.is_stream and not each.flow.write_paused:
                    each.since = now
                elif each.since < now - EXCHANGE_SECONDS:
                    _abort(each)
        return await super().on_tick(counter)


def tuned(listener: socket.socket) -> socket.socket:
    """Set what accepted connections inherit."""
    listener.setblocking(False)
    # asyncio sets it only on sockets that name their protocol, which these do not. Headers and body are two
    # writes, and the second one waited 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
    # A reader on a machine that is gone would keep its stream for a quarter of an hour.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(EXCHANGE_SECONDS * 1000))
    return listener

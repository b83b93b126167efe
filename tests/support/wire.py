"""One way to a broker: a TCP proxy that reads Kafka's frames, and what can be done to it.

    cut      nothing passes, one way or both, without notice; what was sent arrives after `heal`
    delay    each answer is that late
    fate     of a single request, see `Fate`
    heal     the cuts are over

All cuts of the tests are made of these: in front of one broker (`Proxy`), between three brokers and their clients
(three_brokers.py), between the service processes of a chaos run and their brokers (tests/chaos/wires.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal
from unittest import mock

from snapreplay.service.kafka import connection
from snapreplay.service.loop_thread import LoopThread

HOST = "127.0.0.1"
PRODUCE, METADATA, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 3, 22, 24, 26
ANSWER_S = 60.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Direction = Literal["in", "out", "both"]
Way = Literal["in", "out"]
"""Requests go in, answers come out."""

Fate = Literal["pass", "mute", "hold", "reset before", "reset after"]
"""Of a request. "mute": done, and its answer never comes. "hold": it is never sent on, its answer never comes.
"reset": the connection ends, before the broker has got it or after the broker has done it."""

Decide = Callable[["Wire", bytes], Awaitable[Fate]]


async def passing(wire: Wire, frame: bytes) -> Fate:
    return "pass"


class Wire:
    """A wire from any client to one broker. What is done to it counts at once, also for open connections."""

    def __init__(self, target: tuple[str, int], decide: Decide = passing) -> None:
        self.target = target
        self.port = 0
        self.delay_s = 0.0
        self._decide = decide
        self.is_cut: frozenset[str] = frozenset()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen at `port` of the loopback address."""
        async with listening(HOST, 0, self.carry) as self.port:
            yield

    async def cut(self, direction: Direction = "both") -> None:
        """This way and no other."""
        await self._set(frozenset(("in", "out") if direction == "both" else (direction,)))

    async def heal(self) -> None:
        await self._set(frozenset())

    async def _set(self, cut: frozenset[str]) -> None:
        async with self._changed:
            self.is_cut = cut
            self._changed.notify_all()

    async def carry(self, client: Streams) -> None:
        await self._whole("in")
        broker = await asyncio.open_connection(*self.target)
        with contextlib.closing(broker[1]):
            withheld: dict[bytes, Fate] = {}
            pumps = [
                asyncio.create_task(self._requests(client, broker, withheld)),
                asyncio.create_task(self._answers(broker, client, withheld)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.wait(pumps)

    async def _requests(self, client: Streams, broker: Streams, withheld: dict[bytes, Fate]) -> None:
        while frame := await self._next(client, "in"):
            fate = await self._decide(self, frame)
            if fate == "reset before":
                return
            if fate == "hold":
                continue
            if fate != "pass":
                withheld[frame[8:12]] = fate
            await _write(broker, frame)
            if fate == "reset after":
                await asyncio.Event().wait()  # until it is answered, or the client has left

    async def _answers(self, broker: Streams, client: Streams, withheld: dict[bytes, Fate]) -> None:
        while frame := await self._next(broker, "out"):
            fate = withheld.pop(frame[4:8], "pass")
            if fate == "reset after":
                return
            if fate == "pass":
                await asyncio.sleep(self.delay_s)  # the delay itself
                await self._whole("out")
                await _write(client, frame)

    async def _next(self, source: Streams, way: Way) -> bytes:
        """A frame, as soon as it may pass; empty at the end of the connection, which has to wait, too."""
        frame = await read_frame(source[0])
        await self._whole(way)
        return frame

    async def _whole(self, way: Way) -> None:
        if way in self.is_cut:
            async with self._changed:
                await self._changed.wait_for(lambda: way not in self.is_cut)


@asynccontextmanager
async def listening(host: str, port: int, carry: Callable[[Streams], Coroutine[Any, Any, None]]) -> AsyncIterator[int]:
    """`carry` each connection to this port, or to any that is free; the port."""
    tasks: set[asyncio.Task[None]] = set()

    async def carried(client: Streams) -> None:
        with contextlib.closing(client[1]), contextlib.suppress(OSError):
            await carry(client)

    def accept(*client: Any) -> None:
        task = asyncio.get_running_loop().create_task(carried(client))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, host, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@contextmanager
def refusing() -> Iterator[int]:
    """Provide a port of the loopback address that refuses connections: it is bound, so that no other program takes it,
    and its port is closed."""
    with socket.socket() as held:
        held.bind((HOST, 0))
        yield held.getsockname()[1]


async def _write(to: Streams, frame: bytes) -> None:
    with contextlib.suppress(OSError):  # that it is gone is seen where it is read
        to[1].write(frame)
        await to[1].drain()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer, its size in front; empty at the end of the connection."""
    try:
        size = await reader.readexactly(4)
        return size + await reader.readexactly(int.from_bytes(size, "big"))
    except (OSError, EOFError):
        return b""


def api_key(frame: bytes) -> int:
    return int.from_bytes(frame[4:6], "big")


def detour(ports: Mapping[str, int]) -> Any:
    """A patch: our clients' new connections to a broker ("host:port") go to this port of the loopback address.

    Clients connect to the addresses that brokers advertise, so this is the one place where a wire can be put between
    them without changing anything else of the client.
    """
    connect = connection.connect

    async def by_wire(host: str, port: int, given: connection.Arguments) -> Any:
        wire = ports.get(f"{host}:{port}")
        return await (connect(host, port, given) if wire is None else connect(HOST, wire, given))

    return mock.patch.object(connection, "connect", by_wire)


@contextmanager
def loop_of_wires() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A thread with a loop for wires whose users have none; what to call from outside."""
    thread = LoopThread("wires")
    thread.start()
    try:
        yield lambda work: thread.submit(work).result(ANSWER_S)
    finally:
        thread.stop()


Fault = Callable[[int], Fate]
"""The API key of a request → what becomes of it."""


class Proxy:
    """One broker behind it. `seen` counts requests by API key; `fault` decides on each."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.fault: Fault = lambda _: "pass"
        self.seen: Counter[int] = Counter()
        self._address = bootstrap_servers
        host, _, port = bootstrap_servers.rpartition(":")
        self._wire = Wire((host, int(port)), self._decide)

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        """Pass aiokafka's new connections to the broker through the proxy, while this is open."""
        async with self._wire.listening():
            with detour({self._address: self._wire.port}):
                yield

    async def _decide(self, wire: Wire, frame: bytes) -> Fate:
        self.seen[api_key(frame)] += 1
        return self.fault(api_key(frame))


def once(key: int, fate: Fate) -> Fault:
    """A fault that hits the first such request only."""
    left = {key}

    def fault(found: int) -> Fate:
        if found not in left:
            return "pass"
        left.clear()
        return fate

    return fault

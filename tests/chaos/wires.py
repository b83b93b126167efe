"""The wires between service processes and brokers: TCP proxies that understand Kafka's framing.

One listening port per (process, broker). What a wire does to the requests on it may be changed at any time, also for
connections that are open. Every wire of a run lives in one thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

HOST = "127.0.0.1"
PRODUCE, ADD_PARTITIONS, END_TXN = 0, 24, 26
LATE_S = 0.01
"""After the next transaction's first Produce: then some of it is there, and a late EndTxn would commit just that."""

ANSWER_S = 5.0
T = TypeVar("T")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Rule:
    """What happens on a wire. Without any of it everything passes.

    `mute_requests`, `mute_answers`: held back until the rule changes, then delivered, as by packets sent again.
    `delay_s`: each answer is that late. `cut`: every `cut_every`-th request ends the connection, "before" or "after"
    it was sent on. `late_commit`: the next EndTxn is held until the transaction after it has begun.
    """

    mute_requests: bool = False
    mute_answers: bool = False
    delay_s: float = 0.0
    cut: str = ""
    cut_every: int = 20
    late_commit: bool = False


CLEAN = Rule()


@dataclass
class Late:
    """An EndTxn that was held.

    Attributes:
        begun: the transaction after it has begun.
        error_code: what the broker said to it when it came: 0 = it decided a transaction that it was not meant for;
            None: no answer.
        arrived: it was answered.
    """

    transactional_id: str
    frame: bytes
    wire: Wire
    begun: bool = False
    error_code: int | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class Wire:
    """From one service process to one broker."""

    def __init__(self, target: tuple[str, int], bundle: Bundle) -> None:
        self.target = target
        self.port = 0
        self.rule = CLEAN
        self.changed = asyncio.Condition()
        self._bundle = bundle
        self._requests_seen = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def set(self, rule: Rule) -> None:
        async with self.changed:
            self.rule = rule
            self._requests_seen = 0
            self.changed.notify_all()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve((reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: Streams) -> None:
        try:
            with contextlib.suppress(OSError, EOFError):
                await self._until(lambda: not self.rule.mute_requests)
                await self._connected(client, await asyncio.open_connection(*self.target))
        finally:
            client[1].close()

    async def _connected(self, client: Streams, broker: Streams) -> None:
        back = asyncio.get_running_loop().create_task(self._answers(broker, client))
        try:
            await self._requests(client, broker)
        finally:
            back.cancel()
            broker[1].close()

    async def _requests(self, client: Streams, broker: Streams) -> None:
        while True:
            frame = await read_frame(client[0])
            await self._until(lambda: not self.rule.mute_requests)
            if self._hold(frame):
                continue
            verdict = self._verdict()
            if verdict == "before":
                return
            await self._bundle.before(frame)
            broker[1].write(frame)
            await broker[1].drain()
            self._bundle.passed(frame)
            if verdict == "after":
                client[1].close()
                await asyncio.sleep(ANSWER_S / 10)  # closed at once, the broker might not do it
                return

    def _verdict(self) -> str:
        self._requests_seen += 1
        hit = self.rule.cut and self._requests_seen % self.rule.cut_every == 0
        return self.rule.cut if hit else ""

    def _hold(self, frame: bytes) -> bool:
        """Whether this is an EndTxn to be held: its answer will never come, and the client asks again."""
        if not self.rule.late_commit or api_key(frame) != END_TXN:
            return False
        self.rule = CLEAN
        self._bundle.hold(Late(transactional_id(frame), frame, self))
        return True

    async def _answers(self, broker: Streams, client: Streams) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = await read_frame(broker[0])
                delay_s = self.rule.delay_s + self._bundle.slow_s
                if delay_s:
                    await asyncio.sleep(delay_s)  # the delay itself
                await self._until(lambda: not self.rule.mute_answers)
                client[1].write(frame)
                await client[1].drain()
        client[1].close()

    async def _until(self, holds: Callable[[], bool]) -> None:
        if not holds():
            async with self.changed:
                await self.changed.wait_for(holds)

    async def send_late(self, late: Late) -> None:
        """On a connection of its own, as a packet that took another way."""
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            reader, writer = await asyncio.open_connection(*self.target)
            try:
                writer.write(late.frame)
                async with asyncio.timeout(ANSWER_S):
                    answer = await read_frame(reader)
                # size, correlation id, throttle time, error code
                (late.error_code,) = struct.unpack(">h", answer[12:14])
            finally:
                writer.close()


class Bundle:
    """All wires of one service process, one per broker, in the wires' loop."""

    def __init__(self, targets: Sequence[tuple[str, int]]) -> None:
        self.wires = [Wire(target, self) for target in targets]
        self.slow_s = 0.0
        """Added to the delay of every answer, whatever the rules say."""
        self.held: list[Late] = []
        self.delivered: list[Late] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self, late: Late) -> None:
        self.held.append(late)

    async def before(self, frame: bytes) -> None:
        """What a transaction still has to write waits until the late EndTxn has decided over it."""
        if api_key(frame) == PRODUCE:
            for late in self.delivered:
                if late.transactional_id == transactional_id(frame):
                    await late.arrived.wait()

    def passed(self, frame: bytes) -> None:
        """The first records of a transaction set free what was held of the one before."""
        key = api_key(frame)
        if not self.held or key not in (PRODUCE, ADD_PARTITIONS):
            return
        for late in [one for one in self.held if one.transactional_id == transactional_id(frame)]:
            if key == ADD_PARTITIONS:
                late.begun = True
            elif late.begun:
                self.held.remove(late)
                self.delivered.append(late)
                task = asyncio.get_running_loop().create_task(self._deliver(late))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _deliver(self, late: Late) -> None:
        try:
            await asyncio.sleep(LATE_S)  # what it is to tear apart must have been written
            await late.wire.send_late(late)
        finally:
            late.arrived.set()

    async def settled(self) -> None:
        """What was set free has arrived; what is still held is forgotten: no transaction came after it."""
        self.held.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def set(self, rule: Rule, broker: int | None = None) -> None:
        """On the wire to one broker (from 0), or on all."""
        for wire in self.wires if broker is None else [self.wires[broker]]:
            await wire.set(rule)


class Wires:
    """Usable from any thread: `bundle(name)` opens the wires of a process, `set` changes what happens on them."""

    def __init__(self, bootstrap_servers: str) -> None:
        pairs = (server.rpartition(":") for server in bootstrap_servers.split(","))
        self.targets = [(host, int(port)) for host, _, port in pairs]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._bundles: list[Bundle] = []

    def __enter__(self) -> Wires:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def bundle(self) -> Bundle:
        """One process's wires."""
        return self._run(self._open())

    def detours(self, bundle: Bundle) -> Mapping[str, int]:
        """A broker's address → the port of the wire to it."""
        return {f"{w.target[0]}:{w.target[1]}": w.port for w in bundle.wires}

    def set(self, bundle: Bundle, rule: Rule, broker: int | None = None) -> None:
        self._run(bundle.set(rule, broker))

    def slow(self, bundle: Bundle, seconds: float) -> None:
        """Make every answer that much later, beside what the rules do; 0 ends it."""
        bundle.slow_s = seconds

    def settled(self, bundle: Bundle) -> None:
        self._run(bundle.settled())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _open(self) -> Bundle:
        bundle = Bundle(self.targets)
        for wire in bundle.wires:
            await wire.listen()
        self._bundles.append(bundle)
        return bundle

    async def _close(self) -> None:
        for bundle in self._bundles:
            for wire in bundle.wires:
                await wire.close()
            await bundle.settled()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer, its size in front."""
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def api_key(frame: bytes) -> int:
    return int.from_bytes(frame[4:6], "big")


def transactional_id(frame: bytes) -> str:
    """Of an AddPartitionsToTxn or EndTxn, versions 0 to 2: it follows key, version, correlation id and client id."""
    (client_id_length,) = struct.unpack(">h", frame[12:14])
    at = 14 + max(0, client_id_length)
    (length,) = struct.unpack(">h", frame[at : at + 2])
    return frame[at + 2 : at + 2 + length].decode()

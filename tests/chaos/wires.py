"""The wires between service processes and brokers: one per (process, broker), all in one thread; and an EndTxn that
comes late: held until the transaction after its own has begun, then delivered into the middle of it (KAFKA-17754)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.support.deadlines import within
from tests.support.wire import (
    ADD_PARTITIONS,
    END_TXN,
    PRODUCE,
    Direction,
    Fate,
    Wire,
    api_key,
    detour,
    loop_of_wires,
    read_frame,
)

LATE_S = 0.01
"""After the next transaction's first Produce: then some of it is there, and a late EndTxn would commit just that."""

ANSWER_S = 10.0


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

    async def deliver(self) -> None:
        """Deliver it on a connection of its own, as a packet that took another way."""
        try:
            await asyncio.sleep(LATE_S)  # what it is to tear apart must have been written
            with contextlib.suppress(OSError, TimeoutError):
                async with within(ANSWER_S):
                    await self._sent()
        finally:
            self.arrived.set()

    async def _sent(self) -> None:
        reader, writer = await asyncio.open_connection(*self.wire.target)
        with contextlib.closing(writer):
            writer.write(self.frame)
            if answer := await read_frame(reader):
                # size, correlation id, throttle time, error code
                (self.error_code,) = struct.unpack(">h", answer[12:14])


class LateCommits:
    """The late commits of one service process. `delivered`: those that a later transaction has set free."""

    def __init__(self) -> None:
        self.delivered: list[Late] = []
        self._armed: set[Wire] = set()
        self._held: list[Late] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def arm(self, wires: Iterable[Wire]) -> None:
        """The next EndTxn of each of these, and of no other, is to be held."""
        self._armed = set(wires)

    def holds(self, wire: Wire, frame: bytes) -> bool:
        """Say whether this one is held: its answer will never come, and the client asks again."""
        if wire not in self._armed or api_key(frame) != END_TXN:
            return False
        self._armed.discard(wire)
        self._held.append(Late(transactional_id(frame), frame, wire))
        return True

    async def let_pass(self, frame: bytes) -> None:
        """Let a request pass; called before it is sent on. What a transaction still has to write waits until the
        late EndTxn has decided over it; its first records set free what was held of the one before."""
        if api_key(frame) not in (PRODUCE, ADD_PARTITIONS):
            return
        name = transactional_id(frame)
        if api_key(frame) == PRODUCE:
            for late in self.delivered:
                if late.transactional_id == name:
                    await late.arrived.wait()
        for late in [one for one in self._held if one.transactional_id == name]:
            if api_key(frame) == ADD_PARTITIONS:
                late.begun = True
            elif late.begun:
                self._held.remove(late)
                self.delivered.append(late)
                task = asyncio.create_task(late.deliver())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait until what was set free has arrived, and forget what is still held: no transaction came after it."""
        self._armed.clear()
        self._held.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)


def transactional_id(frame: bytes) -> str:
    """Read the id of an AddPartitionsToTxn or EndTxn, versions 0 to 2, or a Produce: it follows key, version,
    correlation id and client id."""
    (client_id_length,) = struct.unpack(">h", frame[12:14])
    at = 14 + max(0, client_id_length)
    (length,) = struct.unpack(">h", frame[at : at + 2])
    return frame[at + 2 : at + 2 + length].decode()


VARIABLE = "CHAOS_DETOURS"
"""JSON: a broker's "host:port" → port of its wire on the loopback address."""

RESET_EVERY = 20


def install_from_environment() -> None:
    detour(json.loads(os.environ.get(VARIABLE, "{}"))).start()


class Bundle:
    def __init__(self, targets: list[tuple[str, int]]) -> None:
        self.wires = [Wire(target, self._decide) for target in targets]
        self.late = LateCommits()
        self.reset: Fate = "pass"
        self._requests = 0

    @property
    def detours(self) -> dict[str, int]:
        """A broker's address → the port of the wire to it."""
        return {f"{host}:{port}": w.port for w in self.wires for host, port in (w.target,)}

    async def _decide(self, wire: Wire, frame: bytes) -> Fate:
        if self.late.holds(wire, frame):
            return "hold"
        self._requests += 1
        if self.reset != "pass" and self._requests % RESET_EVERY == 0:
            return self.reset
        await self.late.let_pass(frame)
        return "pass"


class Wires:
    """Usable from any thread. What is done to a bundle is done for the length of a block."""

    def __init__(self, bootstrap_servers: str) -> None:
        pairs = (server.rpartition(":") for server in bootstrap_servers.split(","))
        self._targets = [(host, int(port)) for host, _, port in pairs]
        self._kept, self._open = ExitStack(), AsyncExitStack()
        self._cuts: dict[Wire, list[Direction]] = {}

    def __enter__(self) -> Wires:
        self._run = self._kept.enter_context(loop_of_wires())
        self._kept.callback(lambda: self._run(self._open.aclose()))
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def bundle(self) -> Bundle:
        bundle = Bundle(self._targets)
        for wire in bundle.wires:
            self._run(self._open.enter_async_context(wire.listening()))
        return bundle

    @contextmanager
    def cut(self, bundle: Bundle, broker: int, direction: Direction) -> Iterator[None]:
        """Nothing passes between this process and this broker (from 0), as long as anybody has it cut."""
        wire = bundle.wires[broker]
        cuts = self._cuts.setdefault(wire, [])
        cuts.append(direction)
        self._run(wire.cut(_together(cuts)))
        try:
            yield
        finally:
            cuts.remove(direction)
            self._run(wire.cut(_together(cuts)) if cuts else wire.heal())

    @contextmanager
    def delayed(self, bundle: Bundle, seconds: float) -> Iterator[None]:
        """Every answer is that much later, beside what others do."""
        for wire in bundle.wires:
            wire.delay_s += seconds
        try:
            yield
        finally:
            for wire in bundle.wires:
                wire.delay_s -= seconds

    @contextmanager
    def reset(self, bundle: Bundle, fate: Fate) -> Iterator[None]:
        """Now and then a request ends its connection."""
        bundle.reset = fate
        try:
            yield
        finally:
            bundle.reset = "pass"

    @contextmanager
    def late_commits(self, bundle: Bundle) -> Iterator[list[Late]]:
        """Make the next EndTxn late on each wire; yield those that were, once the block has ended."""
        found: list[Late] = []
        before = len(bundle.late.delivered)
        bundle.late.arm(bundle.wires)
        try:
            yield found
        finally:
            self._run(bundle.late.settled())
            found += bundle.late.delivered[before:]


def _together(cuts: Sequence[Direction]) -> Direction:
    first, *others = {*cuts}
    return "both" if others else first

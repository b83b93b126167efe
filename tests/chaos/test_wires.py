"""Tests that what can be done to a wire is done, and nothing else."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.chaos.wires import Bundle, Wires, transactional_id
from tests.support.deadlines import within
from tests.support.wire import ADD_PARTITIONS, END_TXN, METADATA, PRODUCE, api_key, read_frame

TRANSACTION = (ADD_PARTITIONS, PRODUCE, PRODUCE)
ANSWERED_S = 30.0


def request(key: int, correlation_id: int = 1, transaction: str = "app-0") -> bytes:
    name = transaction.encode()
    body = struct.pack(">hhih", key, 0, correlation_id, 4) + b"test"
    body += struct.pack(">h", len(name)) + name
    return struct.pack(">i", len(body)) + body


class Broker:
    """Answers every request with its correlation id and an error code 0, and remembers it; a client beside it."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.came = asyncio.Event()
        self.reader: Any = None
        self.writer: Any = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while frame := await read_frame(reader):
            self.seen.append(frame)
            self.came.set()
            writer.write(struct.pack(">i", 10) + frame[8:12] + struct.pack(">ih", 0, 0))
        writer.close()

    async def has(self, count: int) -> None:
        async with within(ANSWERED_S):
            while len(self.seen) < count:
                self.came.clear()
                await self.came.wait()

    async def answer(self) -> int | None:
        """The correlation id of the client's next answer; None when the connection has ended."""
        async with within(ANSWERED_S):
            frame = await read_frame(self.reader)
        return int.from_bytes(frame[4:8], "big") if frame else None

    async def ask(self, frame: bytes) -> int | None:
        self.writer.write(frame)
        return await self.answer()


@asynccontextmanager
async def wired() -> AsyncIterator[tuple[Broker, Bundle]]:
    """A broker, the bundle with one wire to it, and an open connection through that."""
    broker = Broker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    bundle = Bundle([server.sockets[0].getsockname()[:2]])
    async with server, bundle.wires[0].listening():
        there = await asyncio.open_connection("127.0.0.1", bundle.wires[0].port)
        broker.reader, broker.writer = there
        try:
            yield broker, bundle
        finally:
            broker.writer.close()
            await broker.writer.wait_closed()
            await bundle.late.settled()


async def test_what_is_left_alone_passes() -> None:
    """Requests and answers, byte for byte and in order."""
    async with wired() as (broker, _):
        sent = [request(METADATA, n) for n in range(3)]
        broker.writer.write(b"".join(sent))
        assert [await broker.answer() for _ in sent] == [0, 1, 2]
        assert broker.seen == sent


@pytest.mark.parametrize(("direction", "arrive"), [("in", 1), ("out", 2), ("both", 1)])
async def test_what_is_cut_arrives_after_the_healing(direction: Any, arrive: int) -> None:
    """No byte is lost and no connection ends; an answer that is held is one to a request that was done."""
    async with wired() as (broker, bundle):
        assert await broker.ask(request(METADATA, 1)) == 1
        await bundle.wires[0].cut(direction)
        late = asyncio.create_task(broker.ask(request(METADATA, 2)))
        await asyncio.sleep(0)
        await broker.has(arrive)
        done, _ = await asyncio.wait([late], timeout=0.1)
        assert not done
        assert len(broker.seen) == arrive
        await bundle.wires[0].heal()
        assert await late == 2


@pytest.mark.parametrize(("fate", "arrive"), [("reset before", 19), ("reset after", 20)])
async def test_a_reset_ends_the_connection_before_or_after_the_broker_did_it(fate: Any, arrive: int) -> None:
    """The client cannot tell which: it gets no answer either way."""
    async with wired() as (broker, bundle):
        bundle.reset = fate
        answers = [await broker.ask(request(METADATA, n)) for n in range(20)]
        assert answers == [*range(19), None]
        assert len(broker.seen) == arrive


async def test_a_delay_makes_answers_late_and_loses_none() -> None:
    """Each one by itself."""
    async with wired() as (broker, bundle):
        bundle.wires[0].delay_s = 0.05
        began = asyncio.get_running_loop().time()
        for n in range(3):
            assert await broker.ask(request(METADATA, n)) == n
        assert asyncio.get_running_loop().time() - began >= 0.15


async def test_a_held_end_txn_comes_into_the_middle_of_the_next_transaction() -> None:
    """Its own answer never reaches the client, a repetition passes at once, and the late copy arrives behind the first
    records of the same id's next transaction and before the others; another id's sets nothing free."""
    async with wired() as (broker, bundle):
        bundle.late.arm(bundle.wires)
        held, again = request(END_TXN, 1), request(END_TXN, 2)
        others = [request(ADD_PARTITIONS, 3, "app-1"), request(PRODUCE, 4, "app-1")]
        begin, first, second = (request(key, n) for n, key in enumerate(TRANSACTION, 5))
        for frame in (held + again, *others, begin, first):
            await broker.ask(frame)
        assert await broker.ask(second) == 7
        assert broker.seen == [again, *others, begin, first, held, second]
        (late,) = bundle.late.delivered
        assert (late.transactional_id, late.error_code) == ("app-0", 0)


def test_frames_are_read_as_kafka_writes_them() -> None:
    """Key and transactional id, also where there is no client id."""
    frame = request(END_TXN, 9, "shop-12")
    assert (api_key(frame), transactional_id(frame)) == (END_TXN, "shop-12")
    nameless = frame[:12] + struct.pack(">h", -1) + frame[18:]
    assert transactional_id(nameless) == "shop-12"


def test_a_wire_is_whole_again_when_nobody_has_it_cut_any_more() -> None:
    """Two faults hit the same one: the end of the first must not end the second."""
    with Wires("127.0.0.1:1") as wires:
        bundle = wires.bundle()
        (wire,) = bundle.wires
        with wires.cut(bundle, 0, "both"):
            with wires.cut(bundle, 0, "in"):
                assert wire.is_cut == {"in", "out"}
            assert wire.is_cut == {"in", "out"}
        assert not wire.is_cut
        with wires.cut(bundle, 0, "out"), wires.cut(bundle, 0, "in"):
            assert wire.is_cut == {"in", "out"}

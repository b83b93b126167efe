"""A wire does what its rule says, and nothing without one."""

import asyncio
import struct
from contextlib import asynccontextmanager

import pytest

from tests.chaos.wires import (
    ADD_PARTITIONS,
    END_TXN,
    PRODUCE,
    Bundle,
    Rule,
    api_key,
    read_frame,
    transactional_id,
)

METADATA = 3
TRANSACTION = (ADD_PARTITIONS, PRODUCE, PRODUCE)
ANSWERED_S = 5.0


def request(key: int, correlation_id: int = 1, transaction: str = "app-0") -> bytes:
    """As aiokafka frames it: header version 1, then a transactional id."""
    name = transaction.encode()
    body = struct.pack(">hhih", key, 0, correlation_id, 4) + b"test"
    body += struct.pack(">h", len(name)) + name
    return struct.pack(">i", len(body)) + body


class Broker:
    """Answers every request with its correlation id and an error code 0, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.came = asyncio.Event()
        self.ended = asyncio.Semaphore(0)
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                frame = await read_frame(reader)
                self.seen.append(frame)
                self.came.set()
                writer.write(struct.pack(">i", 10) + frame[8:12] + struct.pack(">ih", 0, 0))
        except (EOFError, OSError):
            writer.close()
            await writer.wait_closed()
            self.ended.release()

    async def has(self, count: int) -> None:
        async with asyncio.timeout(ANSWERED_S):
            while len(self.seen) < count:
                self.came.clear()
                await self.came.wait()


@asynccontextmanager
async def wired():
    """A broker, the bundle with one wire to it, and an open connection through that."""
    broker = Broker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    bundle = Bundle([server.sockets[0].getsockname()[:2]])
    (wire,) = bundle.wires
    await wire.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    try:
        yield broker, bundle, reader, writer
    finally:
        writer.close()
        await writer.wait_closed()
        await wire.close()
        await bundle.settled()
        for _ in range(broker.connections):
            await broker.ended.acquire()
        server.close()


async def answer(reader: asyncio.StreamReader) -> int:
    """The correlation id of the next answer."""
    async with asyncio.timeout(ANSWERED_S):
        frame = await read_frame(reader)
    return int.from_bytes(frame[4:8], "big")


async def test_without_a_rule_everything_passes():
    """Requests and answers, byte for byte and in order."""
    async with wired() as (broker, _, reader, writer):
        sent = [request(METADATA, n) for n in range(3)]
        writer.write(b"".join(sent))
        assert [await answer(reader) for _ in sent] == [0, 1, 2]
        assert broker.seen == sent


@pytest.mark.parametrize(
    ("rule", "arrives"), [(Rule(mute_requests=True), False), (Rule(mute_answers=True), True)]
)
async def test_what_is_mute_is_delivered_when_the_rule_ends(rule, arrives):
    """No byte is lost and no connection ends; a muted answer is one to a request that was done."""
    async with wired() as (broker, bundle, reader, writer):
        writer.write(request(METADATA, 1))
        assert await answer(reader) == 1
        await bundle.set(rule)
        writer.write(request(METADATA, 2))
        late = asyncio.create_task(answer(reader))
        if arrives:
            await broker.has(2)
        done, _ = await asyncio.wait([late], timeout=0.1)
        assert not done
        assert (len(broker.seen) == 2) is arrives
        await bundle.set(Rule())
        assert await late == 2


@pytest.mark.parametrize(("cut", "arrives"), [("before", 1), ("after", 2)])
async def test_a_cut_ends_the_connection_before_or_after_the_broker_did_it(cut, arrives):
    """The client cannot tell which: it gets no answer either way."""
    async with wired() as (broker, bundle, reader, writer):
        await bundle.set(Rule(cut=cut, cut_every=2))
        writer.write(request(METADATA, 1))
        assert await answer(reader) == 1
        writer.write(request(METADATA, 2))
        await broker.has(arrives)
        with pytest.raises(asyncio.IncompleteReadError):
            await answer(reader)
        assert len(broker.seen) == arrives


async def test_a_delay_makes_answers_late_and_loses_none():
    """Each one by itself."""
    async with wired() as (_, bundle, reader, writer):
        await bundle.set(Rule(delay_s=0.05))
        began = asyncio.get_running_loop().time()
        for n in range(3):
            writer.write(request(METADATA, n))
            assert await answer(reader) == n
        assert asyncio.get_running_loop().time() - began >= 0.15


async def test_a_held_end_txn_comes_into_the_middle_of_the_next_transaction():
    """Its own answer never reaches the client, a repetition passes at once, and the late copy arrives behind the first
    records of the same id's next transaction and before the others; another id's sets nothing free."""
    async with wired() as (broker, bundle, reader, writer):
        await bundle.set(Rule(late_commit=True))
        held, again = request(END_TXN, 1), request(END_TXN, 2)
        others = [request(ADD_PARTITIONS, 3, "app-1"), request(PRODUCE, 4, "app-1")]
        begin, first, second = (request(key, n) for n, key in enumerate(TRANSACTION, 5))
        for frame in (held + again, *others, begin, first):
            writer.write(frame)
            await answer(reader)
        writer.write(second)
        assert await answer(reader) == 7
        assert broker.seen == [again, *others, begin, first, held, second]
        await bundle.settled()
        (late,) = bundle.delivered
        assert (late.transactional_id, late.error_code) == ("app-0", 0)


def test_frames_are_read_as_kafka_writes_them():
    """Key and transactional id, also where there is no client id."""
    frame = request(END_TXN, 9, "shop-12")
    assert (api_key(frame), transactional_id(frame)) == (END_TXN, "shop-12")
    nameless = frame[:12] + struct.pack(">h", -1) + frame[18:]
    assert transactional_id(nameless) == "shop-12"

"""What a broker may send instead of an answer: each is defined and named. A scripted broker at the wire."""

import asyncio
import gzip
import struct
from typing import Any

import pytest

from snapreplay.errors import DamagedError, StopError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import NotAuthorized, OffsetTrimmed
from snapreplay.service.kafka import reader as kafka_reader
from snapreplay.service.kafka import records as parsers
from snapreplay.service.kafka.reader import ATTEMPTS_MAX, KafkaReader
from snapreplay.service.kafka.throttling import THROTTLING
from snapreplay.service.ports import TopicPartition
from tests.support import foreign_records, record_batches
from tests.support.deadlines import scaled, within
from tests.support.foreign_records import Foreign
from tests.support.kafka import Since, hasty, until_async
from tests.support.scripted_fetches import END, TOPIC, TOPIC_ID, Says, ScriptedBroker, serving
from tests.support.stage import until

SOURCE = TopicPartition(TOPIC, 0)
GZIP = 1


def plain(offset: int) -> bytes:
    return record_batches.batch(offset, offset, [(offset, b"k", b"%d" % offset)])


def at(offset: int, data: bytes) -> bytes:
    """Return a batch as if it had been written there."""
    return struct.pack(">q", offset) + data[8:]


def packed(offset: int, attributes: int, body: bytes) -> bytes:
    return at(offset, foreign_records.batch([Foreign(1, b"k", b"v")], attributes, lambda _: body))


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def of_format(data: bytes, number: int) -> bytes:
    return data[:16] + bytes([number]) + data[17:]


LOG = {offset: plain(offset) for offset in range(3)}
GOOD = b"".join(LOG.values())
RECOVERED = {
    "half a frame": Says(GOOD, how="half"),
    "a frame with half an answer": Says(GOOD, how="short"),
    "the connection ends": Says(how="closed"),
    "no answer": Says(how="silent"),
    "half a batch": Says(GOOD[:40]),
    "a wrong checksum": Says(flipped(plain(0), 65)),
    "the whole fetch is refused": Says(whole_code=-1),
    "not the leader": Says(code=6),
    "an old leader epoch": Says(code=74),
    "an unknown error": Says(code=999),
    "the broker cannot read it": Says(code=2),
}
"""Met twice; then the broker answers as it should."""

ODD = [(b"\xff", b"1"), (b"n", None), (b"", b"")]
READ: dict[str, tuple[bytes, list[Any]]] = {
    "header names and values": (
        at(0, foreign_records.batch([Foreign(1, b"k", b"v", ODD)])),
        [(0, (("\\xff", b"1"), ("n", None), ("", b"")))],
    ),
    "an empty control batch": (record_batches.emptied_marker(0, producer_id=7) + plain(1), [(1, ())]),
    "an empty batch": (record_batches.batch(0, 5, attributes=GZIP) + plain(6), [(6, ())]),
}
"""Bytes → offsets and headers of the records."""

REFUSED = {
    "checksum": (flipped(plain(1), 65), DamagedError, "its checksum is wrong"),
    "codec that fails": (packed(1, GZIP, b"\x1f\x8b\x08 no gzip"), DamagedError, "gzip fails"),
    "cut gzip": (packed(1, GZIP, gzip.compress(bytes(100))[:-9]), DamagedError, "it is cut off"),
    "format": (of_format(plain(1), 3), DamagedError, "there is no record format 3"),
    "codec": (packed(1, 6, b"?"), StopError, "there is no compression codec 6"),
    "inflates": (packed(1, GZIP, gzip.compress(bytes(2 << 20))), StopError, "more than 1 MiB"),
    "trailing bytes": (packed(1, GZIP, gzip.compress(bytes(99))), DamagedError, "damaged 3 times"),
}
"""A batch at offset 1, the error and its reason."""


@pytest.fixture
async def reading():
    """Provide what makes a reader of a scripted broker; nothing is left of it afterwards."""
    readers = []

    async def make(
        broker: ScriptedBroker, request_ms: int = 300, *, read_committed: bool = True, **kafka: str
    ) -> KafkaReader:
        settings = Settings(kafka={**hasty(broker.address, request_ms).kafka, **kafka})
        reader = KafkaReader(settings, read_committed=read_committed, large=False, topic_ids={TOPIC: TOPIC_ID})
        readers.append(reader)
        await reader.start()
        return reader

    yield make
    for reader in readers:
        await reader.close()


async def followed(reader, count, start=0):
    """Follow until so many records came; their offsets and headers."""
    await reader.follow({SOURCE: start})
    found: list[tuple[int, Any]] = []
    async with within(60):
        while len(found) < count:
            found += [(each.offset, each.headers) for each in (await reader.poll(10, 100)).get(SOURCE, ())]
    return found


@pytest.mark.parametrize("name", RECOVERED)
async def test_what_is_no_answer_is_asked_again(reading, name):
    """Every record comes once, and the comparison of the inputs is asked for: it may be another log."""
    async with ScriptedBroker(serving(LOG, RECOVERED[name], RECOVERED[name])).running() as broker:
        since, reader = Since(broker.address), await reading(broker)
        disturbances = reader.disturbances
        assert [offset for offset, _ in await followed(reader, 3)] == [0, 1, 2]
        assert broker.fetched[:3] == [(1, 0)] * 3
        assert reader.position(SOURCE) == 3
        assert reader.disturbances > disturbances
        assert reader.doubt == ""
        await reader.close()
        await until(lambda: not since.tasks)


@pytest.mark.parametrize("name", RECOVERED)
async def test_a_single_record_is_read_after_what_is_no_answer(reading, name):
    """Only then is the leader asked where its log begins and ends."""
    async with ScriptedBroker(serving(LOG, RECOVERED[name])).running() as broker:
        reader = await reading(broker)
        record = await reader.read_at(SOURCE, 1)
        assert (record.offset, record.value) == (1, b"1")
        asked = broker.bounds_asked
        assert (await reader.read_at(SOURCE, 2)).offset == 2
        assert broker.bounds_asked == asked


AT_ONE = {
    "the record": (Says(plain(1)), True, 0),
    "behind another one": (Says(plain(0) + plain(1)), True, 0),
    "a gap": (Says(plain(2)), False, 0),
    "a marker": (Says(record_batches.emptied_marker(1, producer_id=7) + plain(2)), False, 0),
    "trimmed": (Says(code=1), None, 2),
}
"""What a broker has at offset 1, whether a record is found, and how many requests for bounds it takes."""


@pytest.mark.parametrize("name", AT_ONE)
async def test_a_single_record_is_read_without_asking_for_bounds(reading, name):
    says, is_there, bounds_asked = AT_ONE[name]
    async with ScriptedBroker(lambda *_: says).running() as broker:
        broker.start = 2
        reader = await reading(broker)
        if is_there is None:
            with pytest.raises(OffsetTrimmed, match="starts at 2"):
                await reader.read_at(SOURCE, 1)
        else:
            record = await reader.read_at(SOURCE, 1)
            assert (record is not None and record.offset == 1) is is_there
        assert broker.bounds_asked == bounds_asked


@pytest.mark.parametrize("code", [0, 1])
async def test_a_single_record_beyond_the_end_is_none(reading, monkeypatch, code):
    """Whether the broker answers with nothing, or refuses the offset. The first answer is enough."""
    monkeypatch.setattr(kafka_reader, "_POLL_MS", 300_000)
    async with ScriptedBroker(lambda *_: Says(code=code)).running() as broker:
        reader = await reading(broker)
        async with within(20):
            assert await reader.read_at(SOURCE, END + 5) is None
        assert broker.bounds_asked == 2


@pytest.mark.parametrize("read_committed", [True, False])
async def test_a_single_record_of_an_open_transaction_is_none_until_it_ends(reading, monkeypatch, read_committed):
    """For a reader of committed records, and at once: it does not wait for the end of the transaction."""
    monkeypatch.setattr(kafka_reader, "_POLL_MS", 300_000)
    async with ScriptedBroker(serving(LOG)).running() as broker:
        broker.stable_offset = 1
        reader = await reading(broker, read_committed=read_committed)
        async with within(20):
            assert (await reader.read_at(SOURCE, 0)).offset == 0
            for offset in (1, 2):
                record = await reader.read_at(SOURCE, offset)
                assert (record.offset if record else None) == (None if read_committed else offset)
            broker.stable_offset = END
            assert (await reader.read_at(SOURCE, 1)).offset == 1


async def test_a_single_record_of_a_slow_broker_is_fetched_once(reading):
    """The answer is still waited for when the bounds say that there is a record."""
    async with ScriptedBroker(lambda *_: Says(plain(1), how="late")).running() as broker:
        reader = await reading(broker, 10_000)
        found = asyncio.create_task(reader.read_at(SOURCE, 1))
        await until(lambda: broker.bounds_asked == 2)
        broker.lets_go.set()
        assert (await found).offset == 1
        assert broker.fetched == [(1, 1)]


@pytest.mark.parametrize("name", READ)
async def test_what_is_unusual_is_read(reading, name):
    data, expected = READ[name]
    async with ScriptedBroker(serving({0: data})).running() as broker:
        assert await followed(await reading(broker), len(expected)) == expected


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_read_is_named(reading, monkeypatch, name):
    """Partition, offset and reason; what is before it comes first."""
    monkeypatch.setattr(parsers, "INFLATED_BYTES_MAX", 1 << 20)
    data, error, reason = REFUSED[name]
    async with ScriptedBroker(serving({0: plain(0), 1: data})).running() as broker:
        reader = await reading(broker)
        assert [offset for offset, _ in await followed(reader, 1)] == [0]
        with pytest.raises(error, match=reason) as refused:  # noqa: PT012 - whichever poll it is
            async with within(60):
                while True:
                    assert not await reader.poll(10, 100)
        assert "t-0" in refused.value.message
        assert " 1" in refused.value.message
        assert refused.value.hint
        assert reader.position(SOURCE) == 1
        if error is DamagedError:
            assert f"damaged {ATTEMPTS_MAX} times" in refused.value.message


async def test_a_topic_that_may_not_be_read_is_named(reading):
    async with ScriptedBroker(serving(LOG, Says(code=29))).running() as broker:
        reader = await reading(broker)
        with pytest.raises(NotAuthorized, match="topic t"):
            await followed(reader, 1)


async def test_a_leader_that_moves_is_followed(reading):
    """To the broker that the metadata name, from the same position."""

    def script(node: int, number: int, offset: int) -> Says:
        if node != broker.leader:
            return Says(code=6)
        if offset == 1 and node == 1:
            broker.leader = 2
            return Says(code=6)
        return Says(LOG.get(offset, b""))

    async with ScriptedBroker(script).running() as broker:
        assert [offset for offset, _ in await followed(await reading(broker), 3)] == [0, 1, 2]
        assert broker.fetched[0] == (1, 0)
        assert (2, 1) in broker.fetched


async def test_a_silent_broker_is_noticed_before_the_request_times_out(reading):
    """And heard again: nothing is known of the end meanwhile."""
    async with ScriptedBroker(serving(LOG, Says(GOOD, how="late"))).running() as broker:
        reader, loop = await reading(broker, 10_000), asyncio.get_running_loop()
        await reader.follow({SOURCE: 0})
        began = loop.time()
        await until(lambda: reader.is_silent)
        assert loop.time() - began < 10
        assert reader.end_offset(SOURCE) is None
        broker.lets_go.set()
        await until(lambda: not reader.is_silent)
        assert reader.end_offset(SOURCE) == END


async def test_a_batch_that_is_damaged_at_a_replica_is_read_from_the_leader(reading):
    """With a rack, too: the leader sends such a client to the replica, instead of records. Then the rack is named
    again."""

    def script(node: int, number: int, offset: int) -> Says:
        if node == 2:
            return Says(flipped(plain(0), 65))
        return Says(preferred_replica=2) if broker.racks[-1] and offset == 0 else Says(LOG.get(offset, b""))

    async with ScriptedBroker(script).running() as broker:
        reader = await reading(broker, **{"client.rack": "b"})
        assert [offset for offset, _ in await followed(reader, 3)] == [0, 1, 2]
        assert broker.fetched[:3] == [(1, 0), (2, 0), (1, 0)]
        assert broker.racks[:4] == ["b", "b", "", "b"]


async def test_a_damaged_batch_delays_nothing_behind_it(reading):
    """A poll that meets it waits for none of the fetches that it ended."""
    async with ScriptedBroker(serving(LOG, Says(plain(0) + flipped(plain(1), 65)))).running() as broker:
        reader, loop = await reading(broker), asyncio.get_running_loop()
        await reader.follow({SOURCE: 0})
        assert await until_async(lambda: reader.poll(10, 100), bool)
        began = loop.time()
        async with within(60):
            while reader.position(SOURCE) < 3:
                await reader.poll(10, 60_000)
        assert loop.time() - began < scaled(10)


async def test_an_error_of_one_partition_loses_no_record_of_another(reading, monkeypatch):
    """Also one that is no error of Kafka: it comes with the next poll."""
    other, why = TopicPartition(TOPIC, 1), ValueError("a defect behind the wire")
    async with ScriptedBroker(serving(LOG)).running() as broker:
        reader = await reading(broker)
        await reader.follow({SOURCE: 0, other: 0})
        await until(lambda: reader._cursors[SOURCE].has_something)
        reader._cursors[other].fail(why)
        assert [each.offset for each in (await reader.poll(10, 0))[SOURCE]] == [0, 1, 2]
        with pytest.raises(ValueError, match="behind the wire"):
            await reader.poll(10, 0)


async def test_a_quota_is_waited_for(reading):
    """The broker reads nothing of the connection meanwhile (KIP-219)."""
    async with ScriptedBroker(serving(LOG, Says(plain(0), throttle_ms=700))).running() as broker:
        reader = await reading(broker)
        assert [offset for offset, _ in await followed(reader, 3)] == [0, 1, 2]
        assert broker.fetched_at[1] - broker.fetched_at[0] >= 0.7
        assert "Fetch" in str(THROTTLING)

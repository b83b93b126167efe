"""Reading real logs: markers, aborted tails, trimmed and short ones, and brokers that go away."""

import asyncio
import itertools
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import (
    NotAuthenticated,
    OffsetBeyondEnd,
    OffsetTrimmed,
    ReadStalled,
    Unreachable,
)
from snapreplay.service.kafka import reader as reader_module
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.connection import Connection
from snapreplay.service.kafka.cursors import Cursor
from snapreplay.service.kafka.fetches import Fetch
from snapreplay.service.kafka.idle_watch import IdleWatch
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.kafka.shared import Shared
from snapreplay.service.ports import Bounds, EndSeen, LogRecord, TopicPartition
from tests.support.deadlines import scaled, within
from tests.support.inside import send_uncommitted
from tests.support.kafka import Since, hasty, until_async
from tests.support.stage import until
from tests.support.wire import Proxy

FETCH = 1


async def write(cluster, name, topic, shape):
    """ "c3" commits 3 records in a transaction, "a2" aborts 2, "p1" appends one outside of any."""
    values = []
    for number, part in enumerate(shape):
        run = [b"%d-%d" % (number, i) for i in range(int(part[1:]))]
        if part[0] == "p":
            appender = await cluster.appender()
            for value in run:
                await appender.append(LogRecord(topic, value), 0)
            await appender.close()
            values += run
            continue
        producer = await cluster.fence(name)
        if part[0] == "c":
            await producer.commit(0, [], [LogRecord(topic, value) for value in run])
            values += run
        else:
            await send_uncommitted(producer, topic, *run)
        await producer.discard()
    await (await cluster.fence(name)).discard()
    return values


async def read(reader, source, start, end):
    return [record async for records in reader.read(source, start, end) for record in records]


@pytest.mark.parametrize(
    "shape", [["c1", "a2", "a2", "a2", "a2", "a2"], ["p3"], ["a3"], ["c2", "a1", "c2", "p2", "a3"]], ids=" ".join
)
async def test_a_read_to_the_end_ends_and_has_everything_committed(cluster, new_topic, unique, shape):
    """Markers and aborted tails give no record and no hang: done means the position reached the end."""
    topic = await new_topic()
    values = await write(cluster, unique("app"), topic, shape)
    reader, source = await cluster.reader(), TopicPartition(topic, 0)
    bounds = await reader.bounds(source)
    started = time.monotonic()
    records = await read(reader, source, 0, bounds.end_offset)
    assert [record.value for record in records] == values
    assert reader.position(source) >= bounds.end_offset
    assert reader.end_offset(source) == bounds.end_offset
    assert time.monotonic() - started < scaled(15)


async def test_every_window_holds_exactly_its_records(cluster, new_topic, unique):
    """Any start and end inside a log with gaps: records with start <= offset < end, in order."""
    topic = await new_topic()
    await write(cluster, unique("app"), topic, ["c2", "a2", "c1", "p2", "c3"])
    reader, source = await cluster.reader(), TopicPartition(topic, 0)
    bounds = await reader.bounds(source)
    every = [record.offset for record in await read(reader, source, *bounds)]
    for start in range(bounds.end_offset):
        for end in range(start, bounds.end_offset + 1):
            found = [record.offset for record in await read(reader, source, start, end)]
            assert found == [offset for offset in every if start <= offset < end]
    for offset in range(bounds.end_offset + 2):
        record = await reader.read_at(source, offset)
        assert (record.offset if record else None) == (offset if offset in every else None)


async def test_an_empty_poll_is_not_the_end(cluster, new_topic, unique, monkeypatch):
    """A broker that is slow gives nothing at first, and nothing in between."""
    topic, take, takes = await new_topic(), Cursor.take, itertools.count()
    values = await write(cluster, unique("app"), topic, ["c5"])
    monkeypatch.setattr(Cursor, "take", lambda self, _: take(self, 2) if next(takes) % 2 else [])
    reader = await cluster.reader()
    records = await read(reader, TopicPartition(topic, 0), 0, 6)
    assert [record.value for record in records] == values


async def test_slices_are_bounded_and_never_empty(cluster, new_topic, unique):
    """12,000 records come in several slices, so that the caller can yield in between."""
    topic = await new_topic()
    producer = await cluster.fence(unique("app"))
    await producer.commit(0, [], [LogRecord(topic, b"x")] * 12_000)
    reader = await cluster.reader()
    sizes = [len(records) async for records in reader.read(TopicPartition(topic, 0), 0, 12_001)]
    assert sum(sizes) == 12_000
    assert all(0 < size <= 5000 for size in sizes)


async def test_an_open_transaction_ends_the_readable_log(cluster, new_topic, unique):
    """The end is the last stable offset; what lies behind an open transaction comes when it has ended."""
    topic, name = await new_topic(), unique("app")
    producer = await cluster.fence(name)
    await producer.commit(0, [], [LogRecord(topic, b"0")])
    await send_uncommitted(producer, topic, b"open")
    reader, plain = await cluster.reader(), await cluster.reader(read_committed=False, large=True)
    source = TopicPartition(topic, 0)
    assert await reader.bounds(source) == Bounds(0, 2)
    assert await plain.bounds(source) == Bounds(0, 3)
    assert [r.value for r in await read(plain, source, 0, 3)] == [b"0", b"open"]
    assert plain.end_offset(source) == 3
    await producer.discard()
    await (await cluster.fence(name)).discard()
    bounds = await reader.bounds(source)
    assert bounds == Bounds(0, 4)
    assert [r.value for r in await read(reader, source, *bounds)] == [b"0"]


async def test_offsets_below_and_above_the_range_differ(cluster, new_topic, unique):
    """Below the start is trimmed, above the end is a short log or a stale leader: other reactions."""
    topic = await new_topic()
    await write(cluster, unique("app"), topic, ["c5"])
    source = TopicPartition(topic, 0)
    assert await cluster.delete_records(source, 3) == 3
    reader = await cluster.reader()
    with pytest.raises(OffsetTrimmed) as trimmed:
        await read(reader, source, 1, 5)
    assert (trimmed.value.facts["offset"], trimmed.value.facts["start_offset"]) == (1, 3)
    with pytest.raises(OffsetBeyondEnd) as beyond:
        await read(reader, source, 100, 101)
    assert (beyond.value.facts["offset"], beyond.value.facts["end_offset"]) == (100, 6)
    with pytest.raises(OffsetTrimmed):
        await reader.read_at(source, 2)
    assert await reader.read_at(source, 100) is None
    assert len(await read(reader, source, 3, 6)) == 2


async def test_following_two_partitions_gives_both_from_their_positions(cluster, new_topic, unique):
    """Positions pass the markers, and what comes later comes by itself."""
    topic = await new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer, reader = await cluster.fence(unique("app")), await cluster.reader()
    await producer.commit(0, [], [LogRecord(topic, b"0"), LogRecord(topic, b"1")])
    await reader.follow({first: 1, second: 0})
    assert (reader.position(first), reader.position(second)) == (1, 0)
    assert reader.end_offset(second) is None
    await producer.commit(1, [], [LogRecord(topic, b"2")])
    got: list[bytes | None] = []

    async def poll():
        for records in (await reader.poll(100, 50)).values():
            got.extend(record.value for record in records)
        return reader.position(first), reader.position(second)

    await until_async(poll, lambda positions: positions == (3, 2))
    assert set(got) == {b"1", b"2"}
    assert reader.end_offset(second) == 2
    assert await reader.poll(100, 1) == {}


async def test_a_poll_gives_no_more_than_asked_for(cluster, new_topic, unique):
    """A batch's size is the caller's business."""
    topic = await new_topic()
    await write(cluster, unique("app"), topic, ["c50"])
    reader, source = await cluster.reader(), TopicPartition(topic, 0)
    await reader.follow({source: 0})
    polled = await until_async(lambda: reader.poll(7, 100), lambda got: got)
    assert [record.offset for record in polled[source]] == list(range(7))
    assert reader.position(source) == 7


async def test_a_poll_that_waits_is_woken(cluster, new_topic):
    """Also by who calls before it waits; only once."""
    topic = await new_topic()
    reader = await cluster.reader(patient=True)
    await reader.follow({TopicPartition(topic, 0): 0})
    for early in (True, False):
        polling = asyncio.create_task(reader.poll(10, 600_000))
        if not early:
            await until(lambda: reader._fetching._waiter)
        reader.wake()
        async with within(30):
            assert await polling == {}
    again = asyncio.create_task(reader.poll(10, 600_000))
    done, _ = await asyncio.wait([again], timeout=0.3)
    assert not done
    await reader.close()
    async with within(30):
        assert await again == {}


async def test_a_quiet_log_without_a_watch_is_asked_seldom_and_its_end_soon(cluster, new_topic, unique, monkeypatch):
    """Until it is quiet, fetches have the client's own wait; then a longer one, as long as many clients share. The time
    for an answer begins after it. What is written meanwhile comes at once."""
    monkeypatch.setattr(reader_module, "FETCH_MS_PER_CLIENT", 60_000)
    monkeypatch.setattr(IdleWatch, "join", lambda *_: None)
    waits, later_s, send = [], set(), Connection.send

    def seen(self, request, kept_s=0.0):
        if isinstance(request, Fetch):
            waits.append(request.wait_ms)
            later_s.add(kept_s - request.wait_ms / 1000)
        return send(self, request, kept_s)

    monkeypatch.setattr(Connection, "send", seen)
    topic = await new_topic()
    place = TopicPartition(topic, 0)
    ids = await cluster.topic_ids([topic])
    producer, reader = await cluster.fence(unique("app")), await cluster.reader(patient=True, topic_ids=ids)
    await reader.follow({place: 0})
    await until(lambda: 20_000 in waits)
    assert set(waits[:-1]) == {500}
    assert later_s == {0.0}
    assert reader.end_offset(place) == 0
    await producer.commit(0, [], [LogRecord(topic, b"x")])
    async with within(30):
        assert [record.value for record in (await reader.poll(10, 600_000))[place]] == [b"x"]


async def test_without_progress_a_read_fails_with_where_it_stands(broker, cluster, new_topic, unique, monkeypatch):
    """Answers stop: the read waits for its progress timeout, no longer, and names the position.

    The connections it goes through meanwhile are really gone afterwards.
    """
    topic, proxy = await new_topic(), Proxy(broker.bootstrap_servers)
    await write(cluster, unique("app"), topic, ["c5"])
    since, doubts, distrust = Since(broker.bootstrap_servers), [], Shared.distrust

    def doubted(self: Shared) -> None:
        doubts.append(self)
        distrust(self)

    monkeypatch.setattr(Shared, "distrust", doubted)
    impatient = hasty(broker.bootstrap_servers, 500, progress_ms=2500)
    async with proxy.through():
        reader = await KafkaCluster(impatient).reader()
        proxy.fault = lambda key: "mute" if key == FETCH else "pass"
        with pytest.raises(ReadStalled) as stalled:
            await read(reader, TopicPartition(topic, 0), 2, 6)
        assert stalled.value.facts["position"] == 2
        assert doubts, "a read without progress trusts nothing it knows"
        doubts.clear()
        reading = asyncio.create_task(read(reader, TopicPartition(topic, 0), 2, 6))
        await until(lambda: doubts)
        proxy.fault = lambda key: "pass"
        assert len(await reading) == 3, "it fetches again with what it has learned"
        await reader.close()
    await until(lambda: not since.tasks)


@pytest.mark.parametrize("ends_by", [NotAuthenticated("no"), asyncio.CancelledError()], ids=repr)
async def test_a_reader_that_could_not_start_over_still_fetches(cluster, new_topic, unique, monkeypatch, ends_by):
    """It would deliver nothing for ever, without an error."""
    place, producer = TopicPartition(await new_topic(), 0), await cluster.fence(unique("app"))
    reader = await cluster.reader(patient=True)
    await reader.follow({place: 0})

    async def fails(_: Shared) -> None:
        raise ends_by

    with monkeypatch.context() as patch:
        patch.setattr(Shared, "freshen", fails)
        with pytest.raises(type(ends_by)):
            await reader.start_over()
    await producer.commit(0, [], [LogRecord(place.topic, b"x")])
    async with within(30):
        assert [record.value for record in (await reader.poll(1, 600_000))[place]] == [b"x"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_watch_that_does_not_end_keeps_no_reader_open(monkeypatch, is_cancelled):
    monkeypatch.setattr(reader_module, "CANCEL_S", 600.0 if is_cancelled else 0.01)
    reader: Any = KafkaReader(Settings(), read_committed=True, large=False)
    hanging, ends = asyncio.create_task(asyncio.Event().wait()), []

    async def closed(who: str) -> None:
        ends.append(who)

    reader._ends = SimpleNamespace(close=lambda: [hanging])
    monkeypatch.setattr(reader._fetching, "close", lambda: closed("fetching"))
    monkeypatch.setattr(reader._client, "close", lambda: closed("client"))
    closing = asyncio.create_task(reader.close())
    if is_cancelled:
        await asyncio.sleep(0)
        closing.cancel()
    async with within(30):
        await asyncio.wait([closing])
    assert (closing.cancelled(), ends) == (is_cancelled, ["fetching", "client"])
    hanging.cancel()
    await asyncio.wait([hanging])


async def test_ends_that_are_known_are_seen_although_others_cannot_be_asked_for(monkeypatch):
    reader: Any = KafkaReader(Settings(), read_committed=True, large=False)
    known, unknown = (TopicPartition("t", number) for number in range(2))
    seen = {known: EndSeen(7, 0.5)}

    async def fails(_: object) -> None:
        raise Unreachable("no leader answers")

    reader._ends = SimpleNamespace(end_of=seen.get)
    monkeypatch.setattr(reader, "end_offsets", fails)
    assert await reader.ends_seen([known, unknown]) == seen
    with pytest.raises(Unreachable):
        await reader.ends_seen([unknown])


@asynccontextmanager
async def following(broker, place, request_timeout_ms):
    """A reader that knows where its log ends, and what its connections go through."""
    proxy = Proxy(broker.bootstrap_servers)
    async with proxy.through():
        reader = await KafkaCluster(hasty(broker.bootstrap_servers, request_timeout_ms)).reader(patient=True)
        await reader.follow({place: 0})
        while reader.end_offset(place) is None:
            await reader.poll(1, 100)
        yield reader, proxy
        await reader.close()


async def test_a_broker_that_does_not_answer_a_fetch_in_time_is_silent(broker, new_topic):
    """Long before the request has timed out; what the reader knows of the end may be old."""
    place = TopicPartition(await new_topic(), 0)
    async with following(broker, place, 10_000) as (reader, proxy):
        assert not reader.is_silent
        proxy.fault = lambda key: "mute" if key == FETCH else "pass"
        async with within(8.0):  # long before the request has timed out
            assert not await reader.poll(1, 3_600_000), "it ends: an owner at rest has to show that"
        assert reader.is_silent
        assert reader.end_offset(place) == 0
        proxy.fault = lambda key: "pass"
        await reader.follow({place: 0})
        await until(lambda: not reader.is_silent)


async def test_a_broker_stays_silent_until_it_has_answered_a_fetch(broker, new_topic):
    """Also while the client connects again after the time of a request is over: until then nothing is known of the
    end."""
    place = TopicPartition(await new_topic(), 0)
    async with following(broker, place, 300) as (reader, proxy):
        fetches = proxy.seen[FETCH]
        proxy.fault = lambda key: "mute"
        await until(lambda: proxy.seen[FETCH] > fetches and reader.is_silent)
        seen = set()
        for _ in range(20):
            await reader.poll(1, int(scaled(30)))
            seen.add(reader.is_silent)
        assert seen == {True}
        proxy.fault = lambda key: "pass"
        await until(lambda: not reader.is_silent)


async def test_a_reader_closes_at_any_moment_and_leaves_nothing(broker, cluster, new_topic):
    """Directly after start and assign aiokafka's stop raises a CancelledError: no caller sees it."""
    topic = await new_topic()
    since = Since(broker.bootstrap_servers)
    for assigned in (False, True):
        reader = await cluster.reader()
        if assigned:
            await reader.follow({TopicPartition(topic, 0): 0})
        await reader.close()
        await reader.close()
        with pytest.raises(Unreachable, match="closed"):
            await reader.poll(1, 1)
    assert not since.tasks
    await until(lambda: not since.sockets)

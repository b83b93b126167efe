"""Fetch sessions, shared by the live partitions of a process."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.service.kafka import sources
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.fetches import EPOCH_MAX, Session, Wanted
from snapreplay.service.kafka.sources import FetchSession
from snapreplay.service.ports import LogRecord, NewTopic, TopicPartition
from tests.support.deadlines import within
from tests.support.kafka import Since, hasty
from tests.support.reference import send
from tests.support.stage import settings_for, until
from tests.support.wire import Proxy

FETCH = 1
IDS = {"t": "AAECAwQFBgcICQoLDA0ODw", "u": "BBECAwQFBgcICQoLDA0ODw"}


class Broker:
    """What a broker does with sessions: it knows one, and what is in it."""

    def __init__(self) -> None:
        self.session_id, self.epoch = 0, 0
        self.has: dict[TopicPartition, Wanted] = {}
        self.keeps = True

    def fetch(self, session, named, forgotten):
        """Return error code and session id, as KIP-227 says."""
        if session.epoch == 0:
            self.has = {each.partition: each for each in named}
            self.session_id, self.epoch = (self.session_id + 1 if self.keeps else 0), 1
            return 0, self.session_id
        if session.session_id != self.session_id:
            return 70, 0
        if session.epoch != self.epoch:
            return 71, 0
        self.has |= {each.partition: each for each in named}
        for each in forgotten:
            del self.has[each]
        self.epoch += 1
        return 0, self.session_id


@pytest.mark.parametrize("seed", range(40))
def test_a_broker_has_what_the_next_fetch_is_for(seed):
    """Whatever was added, moved and left out, and whichever answers and sessions were lost."""
    chance, broker, session = random.Random(seed), Broker(), FetchSession()
    places = [TopicPartition(topic, number) for topic in IDS for number in range(4)]
    incremental = 0
    for _ in range(200):
        wanted = [Wanted(each, chance.randrange(3)) for each in chance.sample(places, chance.randrange(len(places)))]
        broker.keeps = chance.random() < 0.9
        ids = {each.partition.topic: IDS[each.partition.topic] for each in wanted}
        asked = session.ask(wanted, ids)
        assert session.ids.items() >= ids.items()
        if chance.random() < 0.05:
            broker.session_id += 1  # it has evicted the session
        if chance.random() < 0.05:
            session.lose()  # the request never came to it
            continue
        code, session_id = broker.fetch(*asked)
        if code:
            session.lose(is_known=code != 70)
            continue
        assert broker.has == {each.partition: each for each in wanted}
        incremental += asked[0].is_incremental
        if chance.random() < 0.05:
            session.lose()  # its answer never came
            continue
        session.answered(session_id, wanted)
    assert incremental > 50


def test_another_id_of_a_topic_begins_another_session():
    """The broker could not be told to forget the former one: sessions name topics by id."""
    session, wanted = FetchSession(), [Wanted(TopicPartition("t", 0), 0)]
    session.ask(wanted, {"t": IDS["t"]})
    session.answered(7, wanted)
    assert session.ask(wanted, {"t": IDS["t"]}) == (Session(7, 1), [], [])
    assert session.ask(wanted, {"t": IDS["u"]}) == (Session(7, 0), wanted, ())
    assert session.ids == {"t": IDS["u"]}


def test_the_number_of_a_fetch_begins_again_behind_the_largest():
    assert Session(7, EPOCH_MAX).next(7) == Session(7, 1)
    assert Session(7, EPOCH_MAX - 1).next(7) == Session(7, EPOCH_MAX)
    assert Session(7, 3).next(0) == Session(0, 0)


async def following(cluster, topic, count):
    """Readers that follow a partition each, with their ids, as live partitions do."""
    ids = await cluster.topic_ids([topic])
    readers = {}
    for number in range(count):
        place = TopicPartition(topic, number)
        readers[place] = await cluster.reader(patient=True, topic_ids=ids)
        await readers[place].follow({place: 0}, {})
    return readers


async def come(reader, place, count=1):
    """Poll until so many records came; their values."""
    found: list[bytes | None] = []
    async with within(60):
        while len(found) < count:
            found += [each.value for each in (await reader.poll(1000, 1000)).get(place, ())]
    return found


@pytest.mark.kafka
async def test_idle_partitions_share_connections_and_wait_long(broker, new_topic, monkeypatch):
    """Their ends are known at once. Then one fetch waits for all of them, and what is written comes at once."""
    topic, proxy = await new_topic(20), Proxy(broker.bootstrap_servers)
    monkeypatch.setattr(sources, "IDLE_WAIT_MS", 20_000)
    async with proxy.through():
        cluster = KafkaCluster(hasty(broker.bootstrap_servers, 5000))
        since = Since(broker.bootstrap_servers)
        readers = await following(cluster, topic, 20)
        await until(lambda: all(reader.end_offset(place) == 0 for place, reader in readers.items()))
        lanes = cluster._sources._lanes
        await until(lambda: any(len(lane.asked) == 20 for (_, group), lane in lanes.items() if group == sources._IDLE))
        idle = proxy.seen[FETCH]
        appender = await cluster.appender()
        for number in (3, 17):
            place = TopicPartition(topic, number)
            await appender.append(LogRecord(topic, b"there"), number)
            assert await come(readers[place], place) == [b"there"]
            assert readers[place].end_offset(place) == 1
        assert proxy.seen[FETCH] > idle
        await appender.close()
        for reader in readers.values():
            await reader.close()
        await until(lambda: not since.tasks and not since.sockets)


@pytest.mark.kafka
async def test_idle_partitions_do_not_hold_up_a_busy_one(cluster, new_topic, monkeypatch):
    """A long fetch for them is under way. What comes to the busy one comes at once, also after it was held back."""
    monkeypatch.setattr(sources, "IDLE_WAIT_MS", 600_000)
    topic, hot = await new_topic(10), 4
    readers, place = await following(cluster, topic, 10), TopicPartition(topic, hot)
    appender, reader, sent = await cluster.appender(), readers[TopicPartition(topic, hot)], 0
    lanes = cluster._sources._lanes
    await until(lambda: any(lane.asked for (_, group), lane in lanes.items() if group == sources._IDLE))
    for _ in range(4):
        for _ in range(6):
            await appender.append(LogRecord(topic, b"x" * 700_000), hot)
        found = await come(reader, place, 6)
        sent += len(found)
    assert sent == 24
    assert reader.disturbances == 1, "nothing was unusual"
    await appender.close()
    for each in readers.values():
        await each.close()


@pytest.mark.kafka
async def test_a_lost_connection_disturbs_and_what_follows_is_read(broker, new_topic):
    """All partitions of that broker, as with a client of their own. A doubt is one partition's alone."""
    topic, proxy = await new_topic(3), Proxy(broker.bootstrap_servers)
    async with proxy.through():
        cluster = KafkaCluster(hasty(broker.bootstrap_servers, 5000))
        readers = await following(cluster, topic, 3)
        places = list(readers)
        await until(lambda: all(reader.end_offset(place) == 0 for place, reader in readers.items()))
        before = [reader.disturbances for reader in readers.values()]
        proxy.fault = lambda key: "reset before" if key == FETCH else "pass"
        await until(lambda: all(each.disturbances > was for each, was in zip(readers.values(), before, strict=True)))
        proxy.fault = lambda _: "pass"
        appender = await cluster.appender()
        for place, reader in readers.items():
            await appender.append(LogRecord(topic, b"there"), place.partition)
            assert await come(reader, place) == [b"there"]
            assert not reader.is_silent
        (cursor,) = readers[places[0]]._cursors.values()
        cursor.doubt_because("another log")
        await appender.append(LogRecord(topic, b"more"), 1)
        assert await come(readers[places[1]], places[1]) == [b"more"]
        assert [bool(each.doubt) for each in readers.values()] == [True, False, False]
        await appender.close()
        for each in readers.values():
            await each.close()


def test_a_fetch_is_for_one_cursor_of_a_partition():
    """The one that is furthest behind: an answer for another offset has records that it would skip."""

    def place(topic: str, offset: int) -> Any:
        return SimpleNamespace(cursor=SimpleNamespace(partition=TopicPartition(topic, 0), fetch_offset=offset))

    ahead, behind, other = place("t", 5), place("t", 3), place("u", 9)
    assert sources._one_of_each([ahead, behind, other]) == [behind, other]
    assert sources._one_of_each([behind, other, ahead]) == [behind, other]


@pytest.mark.kafka
async def test_each_reader_of_one_partition_gets_all_of_it(broker, unique):
    """From its own position, as partitions of an app read a broadcast table."""
    cluster, source = KafkaCluster(settings_for(broker.bootstrap_servers)), TopicPartition(unique("read"), 0)
    await cluster.create_topics([NewTopic(source.topic, 1)])
    ids = await cluster.topic_ids([source.topic])

    def write(first: int, end: int) -> None:
        send(broker.bootstrap_servers, source.topic, 1, [(f"k{number}", number) for number in range(first, end)])

    await asyncio.to_thread(write, 0, 40)
    readers = [await cluster.reader(patient=True, topic_ids=ids) for _ in range(3)]
    found: list[list[int]] = [[], [], []]
    starts = (0, 20, 39)
    for reader, start in zip(readers, starts, strict=True):
        await reader.follow({source: start})
    for first, end in ((40, 40), (40, 60), (60, 61)):
        await asyncio.to_thread(write, first, end)
        async with within(30):
            while any(not each or each[-1] < end - 1 for each in found):
                for reader, offsets in zip(readers, found, strict=True):
                    offsets += [each.offset for each in (await reader.poll(5, 20)).get(source, ())]
    assert found == [list(range(start, 61)) for start in starts]
    for reader in readers:
        await reader.close()

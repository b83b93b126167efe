"""The ends of quiet logs: which are asked for, and which the watch of their broker knows."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.cursors import Answered, Reading
from snapreplay.service.kafka.idle_watch import EndsWatch, Place, Watches, _End
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.ports import EpochEnd, LogRecord, TopicPartition
from tests.support.inside import send_uncommitted
from tests.support.kafka import hasty, until_async
from tests.support.stage import until
from tests.support.wire import Proxy

LIST_OFFSETS, FETCH = 2, 1
MANY = 5


@pytest.mark.parametrize(
    ("answer", "is_news"),
    [
        (Answered(0, 4, 4), False),
        (Answered(0, 9, 4), False),  # of a transaction that is open
        (Answered(0, 9, 9, records=b"more"), True),
        (Answered(0, 9, 9), True),
        (Answered(0, 3, 3), True),
        (Answered(1), True),
        (Answered(0, 4, 4, diverging=EpochEnd(1, 2)), True),
    ],
)
def test_what_moves_an_end(answer, is_news):
    end = _End(TopicPartition("t", 0), 4, Reading(), "id")
    assert end.is_news(answer) is is_news


@pytest.mark.kafka
async def test_a_quiet_end_is_not_asked_for_again(broker, new_topic, unique):
    """But one that has moved is; and when the watch is lost, all are. Each has the time when its leader was asked."""
    topic, proxy, loop = await new_topic(MANY), Proxy(broker.bootstrap_servers), asyncio.get_running_loop()
    logs, before = [TopicPartition(topic, number) for number in range(MANY)], asyncio.all_tasks()
    async with proxy.through():
        cluster = KafkaCluster(hasty(broker.bootstrap_servers, 5000))
        producer = await cluster.fence(unique("app"))
        await producer.commit(1, [], [LogRecord(topic, b"x")] * 3)
        reader: Any = await cluster.reader(patient=True, topic_ids=await cluster.topic_ids([topic]))

        async def asked():
            """How many questions a look takes, and what it sees."""
            count = proxy.seen[LIST_OFFSETS]
            seen = await reader.ends_seen(logs)
            assert all(each.asked_at <= loop.time() for each in seen.values())
            return proxy.seen[LIST_OFFSETS] - count, {each.partition: end for each, (end, _) in seen.items()}

        async def none_is_asked_for(ends):
            _, found = await until_async(asked, lambda answer: not answer[0])
            assert found == ends

        ends = {0: 0, 1: 4, 2: 0, 3: 0, 4: 0}
        assert await asked() == (1, ends)
        await none_is_asked_for(ends)
        await send_uncommitted(producer, topic, b"open")
        sent_at = loop.time()
        await until(lambda: all(each.asked_at > sent_at for each in reader._ends._places.values()))
        assert await asked() == (0, ends)
        other = await cluster.fence(unique("other"))
        await other.commit(3, [], [LogRecord(topic, b"x")])
        await until(lambda: not reader._ends._places[logs[3]].is_watched)
        ends[3] = 2
        assert await asked() == (1, ends)
        await none_is_asked_for(ends)
        proxy.fault = lambda key: "reset before" if key == FETCH else "pass"
        await until(lambda: not any(each.is_watched for each in reader._ends._places.values()))
        assert await asked() == (1, ends)
        proxy.fault = lambda _: "pass"
        await reader.close()
        await producer.discard()
        await other.discard()
        await until(lambda: asyncio.all_tasks() == before)


@pytest.mark.kafka
async def test_the_users_batching_delays_no_news(broker, new_topic, unique):
    """A reader's own fetches may wait for a minute."""
    topic, given = await new_topic(), hasty(broker.bootstrap_servers, 5000)
    batching = {"fetch.min.bytes": 100_000, "fetch.max.wait.ms": 60_000}
    cluster = KafkaCluster(Settings(kafka={**given.kafka, **batching}))
    producer = await cluster.fence(unique("app"))
    reader: Any = await cluster.reader(patient=True, topic_ids=await cluster.topic_ids([topic]))
    log = TopicPartition(topic, 0)
    assert (await reader.ends_seen([log]))[log].end_offset == 0
    await until(lambda: reader._ends._places[log].is_watched)
    first = reader._ends._places[log]
    began = first.asked_at
    await until(lambda: first.asked_at > began)
    await producer.commit(0, [], [LogRecord(topic, b"x")])
    await until(lambda: not first.is_watched)
    assert (await reader.ends_seen([log]))[log].end_offset == 2
    await reader.close()
    await producer.discard()


@pytest.mark.parametrize(("age_s", "is_known"), [(1.0, True), (3.0, False)])
async def test_an_end_that_was_confirmed_too_long_ago_is_asked_for(age_s, is_known):
    shared, log = Shared(Settings()), TopicPartition("t", 0)
    watch, cursor = EndsWatch(shared, Watches(Settings(), shared), {}), _End(log, 4, Reading(), "id")
    place = watch._places[log] = Place({("id", 0): cursor}, Client(shared))
    place.judge({}, {}, asyncio.get_running_loop().time() - age_s)
    assert (watch.end_of(log) is not None) is is_known


@pytest.mark.kafka
async def test_without_topic_ids_each_end_is_asked_for(cluster, new_topic):
    topic = await new_topic()
    reader = await cluster.reader(patient=True)
    for _ in range(2):
        assert (await reader.ends_seen([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)].end_offset == 0
        assert not reader._ends._places
    await reader.close()

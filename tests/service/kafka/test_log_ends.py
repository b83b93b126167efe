"""The bounds of logs, asked of a real broker by many at once."""

import asyncio
from collections import Counter

import pytest
from aiokafka.protocol.offset import OffsetRequest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.connection import Connection
from snapreplay.service.ports import Bounds, LogRecord, TopicPartition
from tests.support.inside import send_uncommitted
from tests.support.kafka import hasty

MANY = 20


@pytest.fixture
def asked(monkeypatch):
    """Counts the requests for offsets, and the logs that they name."""
    counted: Counter[str] = Counter()
    send = Connection.send

    def counting(self, request, *kept):
        if isinstance(request, OffsetRequest):
            counted["requests"] += 1
            counted["logs"] += sum(len(partitions) for _, partitions in request._topics)
        return send(self, request, *kept)

    monkeypatch.setattr(Connection, "send", counting)
    return counted


async def test_who_asks_at_the_same_time_shares_the_requests(cluster, new_topic, unique, asked):
    """One for where they begin, and one for where they end. Each log has its own bounds, as its reader sees them."""
    topic, name = await new_topic(MANY), unique("app")
    producer = await cluster.fence(name)
    for number in range(MANY):
        await producer.commit(number, [], [LogRecord(topic, b"x")] * number or [LogRecord(topic, b"x")])
    await send_uncommitted(producer, topic, b"open")
    readers = [await cluster.reader() for _ in range(MANY)]
    plain = await cluster.reader(read_committed=False)
    asked.clear()
    async with asyncio.TaskGroup() as group:
        found = [
            group.create_task(reader.bounds(TopicPartition(topic, number))) for number, reader in enumerate(readers)
        ]
    assert [each.result() for each in found] == [Bounds(0, max(number, 1) + 1) for number in range(MANY)]
    assert asked == {"requests": 2, "logs": 2 * MANY}
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await plain.bounds_of([first, second]) == {first: Bounds(0, 3), second: Bounds(0, 2)}
    assert asked["requests"] == 4


async def test_where_many_logs_end_is_one_request(cluster, new_topic, unique, asked):
    """What is committed counts. A log that is not there is absent, and delays no other."""
    topic = await new_topic(MANY)
    producer = await cluster.fence(unique("app"))
    await producer.commit(1, [], [LogRecord(topic, b"x")] * 3)
    await send_uncommitted(producer, topic, b"open")
    logs = [TopicPartition(topic, number) for number in range(MANY)]
    reader = await cluster.reader()
    await reader.bounds_of(logs)  # a new partition may have no leader yet: each of them has answered once
    asked.clear()
    absent = TopicPartition(topic, MANY + 5)
    found = await reader.end_offsets([*logs, absent])
    assert asked == {"requests": 1, "logs": MANY}
    assert found == {log: 4 if log.partition == 1 else 0 for log in logs}


async def test_a_log_that_is_not_there_fails_alone(broker, new_topic, unique):
    """Whoever asks with it for another log gets an answer at once."""
    topic, name = await new_topic(), unique("missing")
    absent = TopicPartition(name, 0), TopicPartition(topic, 7)
    patient = KafkaCluster(hasty(broker.bootstrap_servers, 5000))
    there, *readers = [await patient.reader() for _ in range(3)]
    asking = [asyncio.create_task(each.bounds(log)) for each, log in zip(readers, absent, strict=True)]
    for _ in range(20):
        assert await there.bounds(TopicPartition(topic, 0)) == Bounds(0, 0)
    assert not any(each.done() for each in asking)
    for each in asking:
        each.cancel()
    await asyncio.wait(asking)
    hasty_one = await KafkaCluster(hasty(broker.bootstrap_servers, 5000, metadata_ms=1000)).reader()
    with pytest.raises(Unreachable, match="bounds"):
        await hasty_one.bounds(absent[1])
    for reader in (there, *readers, hasty_one):
        await reader.close()

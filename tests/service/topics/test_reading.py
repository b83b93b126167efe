"""The last records of a partition, with anything between them; and the end of what is decided."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.app.record import Output
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import NewTopic, TopicPartition
from snapreplay.service.topics.reading import decided_bounds, newest
from tests.support.deadlines import within
from tests.support.kafka import decided
from tests.support.stage import settings_for


@pytest.mark.parametrize("count", [1, 3, 100])
async def test_markers_between_the_records_are_passed(broker, unique, count):
    """Ten transactions of one record each: every other offset is a marker."""
    settings, topic = settings_for(broker.bootstrap_servers), unique("newest")
    cluster = KafkaCluster(settings)
    await cluster.create_topics([NewTopic(topic, 1)])
    source = TopicPartition(topic, 0)
    reader = await cluster.reader()
    feeder = KafkaFeeder(settings, unique("newest-feeder"))
    await feeder.start()
    try:
        assert await newest(reader, source, count) == []
        for n in range(10):
            await feeder.feed([Output(topic, None, b"%d" % n, 0, False, None)])
        await decided(cluster, source)
        found = await newest(reader, source, count)
    finally:
        await feeder.close()
        await reader.close()
    assert [each.value for each in found] == [b"%d" % n for n in range(10)][-count:]
    assert found[-1].offset == 18


async def test_the_bounds_of_what_is_decided_wait_for_a_transaction(broker, unique):
    """A commit that was answered may have its marker later, and looks like this one until then."""
    topic = unique("decided")
    cluster = KafkaCluster(settings_for(broker.bootstrap_servers))
    await cluster.create_topics([NewTopic(topic, 1)])
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"", partition=0)
        waiting = asyncio.create_task(decided_bounds(cluster, TopicPartition(topic, 0)))
        await asyncio.wait([waiting], timeout=0.5)  # else it may not have looked yet
        await producer.commit_transaction()
        async with within(30):
            assert await waiting == (0, 2)

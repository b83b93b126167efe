"""Transactions on a real broker: all or nothing, by the owner alone, never for ever."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.partitioner import DefaultPartitioner

from snapreplay.app.record import Output
from snapreplay.service.core.kafka_errors import Fenced, RefusedRecord
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.support.deadlines import within
from tests.support.kafka import decided, overtaken, until_async, values_of


def output(topic, key=b"k", value=b"v"):
    return Output(topic, key, value, None, False, None, (("h", b"1"),))


async def commit_until_refused(producer, records):
    """A broker notices a new limit a little later."""
    async with within(20):
        while True:
            try:
                await producer.commit(0, [], records)
            except RefusedRecord as refused:
                return refused


async def test_offsets_of_the_records_are_the_acknowledged_ones(cluster, new_topic, unique):
    """Each record is found at the offset that commit returned for it, the increment last."""
    log, producer = await new_topic(2), await cluster.fence(unique("app"))
    first = await producer.commit(1, [], [LogRecord(log, b"claim")])
    values = [b"c" * 700_000, b"d" * 700_000, b"increment"]
    offsets = await producer.commit(1, [], [LogRecord(log, value, b"key") for value in values])
    assert first == (0,)
    await decided(cluster, TopicPartition(log, 1))
    reader = await cluster.reader()
    found = [await reader.read_at(TopicPartition(log, 1), offset) for offset in offsets]
    assert [record.value for record in found] == values
    assert list(offsets) == sorted(offsets)


async def test_outputs_are_all_there_in_order_and_where_they_belong(cluster, new_topic, unique):
    """4 MB over several batches: order per partition, Kafka's own choice of partition."""
    log, topic = await new_topic(4), await new_topic(3)
    producer = await cluster.fence(unique("app"))
    keys = [f"key-{i % 97}".encode() for i in range(2000)]
    outputs = [output(topic, key, b"%d %s" % (i, b"x" * 2000)) for i, key in enumerate(keys)]
    await producer.commit(2, outputs, [LogRecord(log, b"increment")])
    choose = DefaultPartitioner()
    for partition in range(3):
        expected = [o.value for o in outputs if choose(o.key, [0, 1, 2], [0, 1, 2]) == partition]
        assert await values_of(cluster, topic, partition) == expected


async def test_a_fence_stops_an_idle_zombie(cluster, new_topic, unique):
    """The older producer of the id can commit nothing more, and says Fenced."""
    topic, name = await new_topic(), unique("app")
    zombie = await cluster.fence(name)
    await zombie.commit(0, [], [LogRecord(topic, b"before")])
    owner = await cluster.fence(name)
    with pytest.raises(Fenced):
        await zombie.commit(0, [], [LogRecord(topic, b"zombie")])
    await owner.commit(0, [], [LogRecord(topic, b"owner")])
    assert await values_of(cluster, topic) == [b"before", b"owner"]


async def test_a_fence_stops_a_zombie_that_has_sent_everything(cluster, settings, new_topic, unique):
    """Fenced between the last acknowledged send and the commit: nothing of it is ever visible."""
    topic, name, owners = await new_topic(), unique("app"), []

    async def fence():
        owners.append(await cluster.fence(name))

    zombie = await overtaken(cluster, settings, name, fence)
    with pytest.raises(Fenced):
        await zombie.commit(0, [output(topic)], [LogRecord(topic, b"zombie")])
    await owners[0].commit(0, [], [LogRecord(topic, b"owner")])
    assert await values_of(cluster, topic) == [b"owner"]


async def test_a_transaction_that_times_out_looks_like_a_fence(cluster, settings, new_topic, unique):
    """The broker aborts it; our commit then gets Fenced, and no reader sees its records."""
    topic = await new_topic()
    # Our own deadline would come first by the settings that are accepted.
    settings = settings.replaced(timeouts=settings.timeouts.replaced(transaction_ms=1000))
    reader = await cluster.reader()

    async def aborted():
        marker = TopicPartition(topic, 0)
        await until_async(lambda: reader.bounds(marker), lambda bounds: bounds.end_offset >= 2)

    producer = await overtaken(cluster, settings, unique("app"), aborted)
    with pytest.raises(Fenced):
        await producer.commit(0, [], [LogRecord(topic, b"late")])
    assert await values_of(cluster, topic) == []


async def test_a_record_that_the_broker_refuses_is_never_committed_around(cluster, settings, new_topic, unique):
    """The limit shrinks under a running producer: the whole transaction is lost, never a part of it."""
    topic, name = await new_topic(), unique("app")
    producer = await cluster.fence(name)
    await producer.commit(0, [], [LogRecord(topic, b"one")])
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    await admin.start()
    limit = {"max.message.bytes": "10000"}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, limit)])
    await admin.close()
    values = [b"small", b"x" * 50_000, b"increment"]
    refused = await commit_until_refused(producer, [LogRecord(topic, value) for value in values])
    assert refused.facts["topic"] == topic
    owner = await cluster.fence(name)
    await owner.discard()
    kept = await values_of(cluster, topic)
    assert len(kept[1:]) % 3 == 0
    assert kept == [b"one", *values * (len(kept[1:]) // 3)]


async def test_an_output_topic_that_does_not_exist_is_refused_by_name(cluster, new_topic, unique):
    """And it is not created by asking for it."""
    topic, missing = await new_topic(), unique("missing")
    producer = await cluster.fence(unique("app"))
    with pytest.raises(RefusedRecord, match=f"{missing} does not exist"):
        await producer.commit(0, [output(missing)], [LogRecord(topic, b"i")])
    assert missing not in await cluster.topic_names()

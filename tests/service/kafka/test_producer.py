"""Transactions on a real broker: all or nothing, nobody but the owner, never for ever."""

import asyncio
import time

import aiokafka.producer.sender as aiokafka_sender
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.partitioner import DefaultPartitioner

from snapreplay.app.record import Output
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import Fenced, RefusedRecord
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.support.kafka import decided, until_async, values_of
from tests.support.overtaken import overtaken

pytestmark = pytest.mark.kafka


def output(topic, key=b"k", value=b"v", partition=None, same_key=False, timestamp_ms=None):
    return Output(topic, key, value, partition, same_key, timestamp_ms, (("h", b"1"),))


async def commit_until_refused(producer, records):
    """A broker notices a new limit a little later."""
    async with asyncio.timeout(20):
        while True:
            try:
                await producer.commit(0, [], records)
            except RefusedRecord as refused:
                return refused


def test_the_client_still_has_the_constant_that_we_shorten():
    """Without BACKOFF_OVERRIDE small transactions are eight times slower, and nobody would notice."""
    source = aiokafka_sender.AddPartitionsToTxnHandler.handle_response.__code__
    assert "BACKOFF_OVERRIDE" in source.co_names
    assert aiokafka_sender.BACKOFF_OVERRIDE == 0.002


async def test_offsets_of_the_records_are_the_acknowledged_ones(cluster, new_topic, unique):
    """Each record is found at the offset that commit returned for it, the increment last."""
    log, producer = await new_topic(2), await cluster.fence(unique("app"))
    first = await producer.commit(1, [], [LogRecord(log, b"claim")])
    values = [b"c" * 700_000, b"d" * 700_000, b"increment"]
    offsets = await producer.commit(1, [], [LogRecord(log, value, b"key") for value in values])
    await producer.discard()
    assert first == (0,)
    await decided(cluster, TopicPartition(log, 1))
    reader = await cluster.reader()
    found = [await reader.read_at(TopicPartition(log, 1), offset) for offset in offsets]
    await reader.close()
    assert [record.value for record in found] == values
    assert list(offsets) == sorted(offsets)


async def test_outputs_are_all_there_in_order_and_where_they_belong(cluster, new_topic, unique):
    """20,000 outputs over several batches: order per partition, Kafka's own choice of partition."""
    log, topic = await new_topic(4), await new_topic(3)
    producer = await cluster.fence(unique("app"))
    keys = [f"key-{i % 97}".encode() for i in range(20_000)]
    outputs = [output(topic, key, b"%d %s" % (i, b"x" * 200)) for i, key in enumerate(keys)]
    await producer.commit(2, outputs, [LogRecord(log, b"increment")])
    await producer.discard()
    choose = DefaultPartitioner()
    for partition in range(3):
        expected = [o.value for o in outputs if choose(o.key, [0, 1, 2], [0, 1, 2]) == partition]
        assert await values_of(cluster, topic, partition) == expected


async def test_the_choice_of_partition_follows_explicit_then_same_key_then_hash(
    cluster, new_topic, unique
):
    """Keys that stay keep the state's partition where the counts agree, and nothing is random."""
    log, equal, other = await new_topic(4), await new_topic(4), await new_topic(3)
    producer = await cluster.fence(unique("app"))
    outputs = [
        output(equal, b"k", b"explicit", partition=1, same_key=True),
        output(equal, b"k", b"same key", same_key=True),
        output(equal, None, b"no key"),
        output(other, b"k", b"other count", same_key=True),
        output(other, None, b"no key"),
    ]
    await producer.commit(3, outputs, [LogRecord(log, b"increment")])
    await producer.discard()
    hashed = DefaultPartitioner()(b"k", [0, 1, 2], [0, 1, 2])
    expected = {b"no key"} if hashed != 0 else {b"no key", b"other count"}
    assert await values_of(cluster, equal, 1) == [b"explicit"]
    assert await values_of(cluster, equal, 3) == [b"same key", b"no key"]
    assert set(await values_of(cluster, other, 0)) == expected
    assert b"other count" in await values_of(cluster, other, hashed)


async def test_timestamp_and_headers_of_an_output_arrive(cluster, new_topic, unique):
    """None means the time of writing."""
    topic, producer = await new_topic(), await cluster.fence(unique("app"))
    before_ms = time.time_ns() // 1_000_000
    outputs = [output(topic, timestamp_ms=1_700_000_000_000), output(topic)]
    await producer.commit(0, outputs, [LogRecord(topic, b"i", None, (("a", b"b"),))])
    await producer.discard()
    await decided(cluster, TopicPartition(topic, 0))
    reader = await cluster.reader()
    records = [await reader.read_at(TopicPartition(topic, 0), offset) for offset in range(3)]
    await reader.close()
    assert records[0].timestamp == 1_700_000_000_000
    assert records[1].timestamp >= before_ms
    assert [record.headers for record in records] == [
        (("h", b"1"),),
        (("h", b"1"),),
        (("a", b"b"),),
    ]


async def test_a_fence_stops_an_idle_zombie(cluster, new_topic, unique):
    """The older producer of the id can commit nothing more, and says Fenced."""
    topic, name = await new_topic(), unique("app")
    zombie = await cluster.fence(name)
    await zombie.commit(0, [], [LogRecord(topic, b"before")])
    owner = await cluster.fence(name)
    with pytest.raises(Fenced):
        await zombie.commit(0, [], [LogRecord(topic, b"zombie")])
    await owner.commit(0, [], [LogRecord(topic, b"owner")])
    await owner.discard()
    assert await values_of(cluster, topic) == [b"before", b"owner"]


async def test_a_fence_stops_a_zombie_that_has_sent_everything(
    cluster, settings, new_topic, unique
):
    """Fenced between the last acknowledged send and the commit: nothing of it is ever visible."""
    topic, name, owners = await new_topic(), unique("app"), []

    async def fence():
        owners.append(await cluster.fence(name))

    zombie = await overtaken(cluster, settings, name, fence)
    with pytest.raises(Fenced):
        await zombie.commit(0, [output(topic)], [LogRecord(topic, b"zombie")])
    await owners[0].commit(0, [], [LogRecord(topic, b"owner")])
    await owners[0].discard()
    assert await values_of(cluster, topic) == [b"owner"]


async def test_a_transaction_that_times_out_looks_like_a_fence(cluster, broker, new_topic, unique):
    """The broker aborts it; our commit then gets Fenced, and nobody can see its records."""
    topic = await new_topic()
    settings = Settings(
        kafka={"bootstrap.servers": broker.bootstrap_servers, "request.timeout.ms": 400},
        timeouts={"transaction_ms": 1000, "commit_ms": 500},
    )
    reader = await cluster.reader()

    async def aborted():
        marker = TopicPartition(topic, 0)
        await until_async(lambda: reader.bounds(marker), lambda bounds: bounds.end_offset >= 2)

    producer = await overtaken(cluster, settings, unique("app"), aborted)
    producer._commit_s = 30  # by the settings our own deadline always comes first
    with pytest.raises(Fenced):
        await producer.commit(0, [], [LogRecord(topic, b"late")])
    await reader.close()
    assert await values_of(cluster, topic) == []


async def test_a_record_that_the_broker_refuses_is_never_committed_around(
    cluster, settings, new_topic, unique
):
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


async def test_a_record_too_large_for_its_topic_is_refused_before_anything_is_sent(
    cluster, new_topic, unique
):
    """Each topic's own limit counts, and a batch of small records never passes it."""
    log, small = await new_topic(), await new_topic(1, max_message_bytes="20000")
    producer = await cluster.fence(unique("app"))
    many = [output(small, b"%d" % i, b"x" * 900) for i in range(200)]
    await producer.commit(0, many, [LogRecord(log, b"increment")])
    with pytest.raises(RefusedRecord, match=r"does not fit its max\.message\.bytes=20000"):
        await producer.commit(0, [output(small, value=b"x" * 20_000)], [LogRecord(log, b"no")])
    assert len(await values_of(cluster, small)) == 200
    assert await values_of(cluster, log) == [b"increment"]


async def test_a_timestamp_far_in_the_future_is_refused(cluster, new_topic, unique):
    """The broker takes an hour at most, since 4.0 by default; the transaction is not committed around it."""
    topic = await new_topic(message_timestamp_after_max_ms="3600000")
    name = unique("app")
    producer = await cluster.fence(name)
    far_ms = time.time_ns() // 1_000_000 + 100 * 3_600_000
    with pytest.raises(RefusedRecord, match="InvalidTimestamp"):
        await producer.commit(0, [output(topic, timestamp_ms=far_ms)], [LogRecord(topic, b"i")])
    await (await cluster.fence(name)).discard()
    assert await values_of(cluster, topic) == []


@pytest.mark.parametrize("partition", [-1, 4])
async def test_a_partition_that_does_not_exist_is_refused_by_name(
    cluster, new_topic, unique, partition
):
    """An app's mistake is no doubt about a commit."""
    topic, producer = await new_topic(4), await cluster.fence(unique("app"))
    with pytest.raises(RefusedRecord, match=f"has no partition {partition}: it has 4"):
        await producer.commit(0, [output(topic, partition=partition)], [LogRecord(topic, b"i")])


async def test_an_output_topic_that_does_not_exist_is_refused_by_name(cluster, new_topic, unique):
    """And it is not created by asking for it."""
    topic, missing = await new_topic(), unique("missing")
    producer = await cluster.fence(unique("app"))
    with pytest.raises(RefusedRecord, match=f"{missing} does not exist"):
        await producer.commit(0, [output(missing)], [LogRecord(topic, b"i")])
    assert missing not in await cluster.topic_names()

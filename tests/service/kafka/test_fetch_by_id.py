"""Fetching by topic id on a real broker, and what is noticed on the way."""

import asyncio

import pytest

from snapreplay.app.ranges import PositionAnchor
from snapreplay.service.core.kafka_errors import TopicGone
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.support.deadlines import within
from tests.support.kafka import hasty, until_async
from tests.support.tampering import recreate, topic_id


async def test_a_broker_reports_that_a_reader_has_another_epoch_than_the_log(cluster, new_topic, broker):
    """Nothing is given out, and asking again at the same position without an epoch works."""
    topic = await new_topic(1)
    source = TopicPartition(topic, 0)
    await write(cluster, topic, 3)
    ids = {topic: topic_id(broker.bootstrap_servers, topic)}
    reader = await cluster.reader(patient=True, topic_ids=ids)
    below = (await reader.batch_below(source, 2)).anchor
    assert await reader.epoch_end(source, below.leader_epoch) == (below.leader_epoch, 3)
    assert await reader.epoch_end(source, below.leader_epoch + 7) is None
    await reader.follow({source: 2}, {source: PositionAnchor(below.leader_epoch + 7, 1)})
    await until_async(lambda: polled(reader), lambda _: reader.doubt)
    await reader.follow({source: 2}, {source: below})
    found = await until_async(lambda: reader.poll(10, 100), bool)
    assert [record.offset for record in found[source]] == [2]
    assert reader.anchor_below(source, 3) == (await reader.batch_below(source, 3)).anchor
    assert reader.doubt == ""


async def test_nothing_of_another_topic_of_the_same_name_is_given_out(cluster, new_topic, broker):
    """A reader by id that waits at its position is not answered by a longer log that takes the name. One by name that
    does not know what was below is."""
    topic = await new_topic(1)
    source = TopicPartition(topic, 0)
    await write(cluster, topic, 3)
    ids = {topic: topic_id(broker.bootstrap_servers, topic)}
    by_id = await cluster.reader(patient=True, topic_ids=ids)
    by_name = await cluster.reader(patient=True)
    await by_id.follow({source: 0})
    count = 0
    while count < 3:
        count += len((await by_id.poll(10, 100)).get(source, ()))
    await asyncio.to_thread(recreate, broker.bootstrap_servers, topic, 1)
    await write(cluster, topic, 10)
    before = by_id.disturbances
    await by_name.follow({source: 3})
    await until_async(lambda: by_name.poll(10, 100), bool)
    assert by_name.position(source) > 3
    await until_async(lambda: polled(by_id), lambda _: by_id.disturbances > before + 1)
    assert by_id.position(source) == 3
    for reader in (by_id, by_name):
        await reader.close()


async def test_what_was_gone_before_it_was_read_ends_however_often_the_client_is_renewed(
    new_topic, broker, monkeypatch
):
    """Another topic has the name: a client without progress lives for less than a broker may lag."""
    monkeypatch.setattr("snapreplay.service.kafka.reader.LAG_SECONDS", 4.0)
    impatient = hasty(broker.bootstrap_servers, 200)
    topic = await new_topic(1)
    servers, ids = broker.bootstrap_servers, {topic: topic_id(broker.bootstrap_servers, topic)}
    await asyncio.to_thread(recreate, servers, topic, 1)
    reader = KafkaReader(impatient, read_committed=True, large=False, topic_ids=ids)
    await reader.start()
    with pytest.raises(TopicGone, match=ids[topic]):
        async with within(60):
            await anext(aiter(reader.read(TopicPartition(topic, 0), 0, 3)))
    assert reader.disturbances > 0, "it was renewed"
    await reader.close()


async def polled(reader):
    """Nothing may come."""
    found = await reader.poll(10, 100)
    assert not found


async def write(cluster, topic, count):
    """Records of our own, each a batch."""
    appender = await cluster.appender()
    for number in range(count):
        await appender.append(LogRecord(topic, str(number).encode()), 0)
    await appender.close()

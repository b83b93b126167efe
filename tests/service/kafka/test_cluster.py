"""The object that the service holds."""

import logging

import pytest

from snapreplay.service.core.kafka_errors import RefusedRecord
from snapreplay.service.kafka import cluster as module
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import Appender, Cluster, LogRecord, Producer, Reader, TopicPartition
from tests.support.kafka import until_async
from tests.support.tampering import configure


def the_ports_are_implemented(
    cluster: KafkaCluster,
) -> Cluster:
    """Checked by mypy, not run: every method has the signature of its port."""
    return cluster


@pytest.mark.kafka
async def test_everything_it_makes_works_and_can_be_closed(cluster, new_topic, unique):
    """Fence, write, read, append and close, as in ARCHITECTURE.md."""
    topic = await new_topic()
    producer: Producer = await cluster.fence(unique("app"))
    reader: Reader = await cluster.reader()
    appender: Appender = await cluster.appender()
    assert await producer.commit(0, [], [LogRecord(topic, b"1")]) == (0,)
    offset = await appender.append(LogRecord(topic, b"2"), 0)
    assert offset in (1, 2), "the commit's marker may come after it (docs/facts.md)"
    source = TopicPartition(topic, 0)
    await until_async(lambda: reader.bounds(source), lambda bounds: bounds.end_offset == 3)
    record = await reader.read_at(source, offset)
    assert record is not None
    assert record.value == b"2"
    await producer.discard()
    await appender.close()
    await reader.close()


@pytest.mark.kafka
async def test_limits_are_asked_for_once_and_again_when_they_are_old(
    cluster, new_topic, monkeypatch
):
    """A restart of many partitions must not ask the cluster for each of them."""
    first, second = await new_topic(1, max_message_bytes="5000"), await new_topic()
    asked = []
    topics = cluster._admin.topics

    async def counted(names):
        asked.append(set(names))
        return await topics(names)

    monkeypatch.setattr(cluster._admin, "topics", counted)
    assert (await cluster._limits_of([first, second]))[first] == 5000
    await cluster._limits_of([second])
    assert asked == [{first, second}]
    monkeypatch.setattr(module, "LIMITS_AGE_S", -1.0)
    await cluster._limits_of([second])
    assert asked[1:] == [{second}]


@pytest.mark.kafka
async def test_limits_are_asked_for_again_after_a_record_was_refused(
    cluster, broker, new_topic, unique
):
    """They may have been changed while the service runs: the next producer knows the new one."""
    topic, name = await new_topic(), unique("app")
    producer = await cluster.fence(name)
    await producer.commit(0, [], [LogRecord(topic, b"1")])
    configure(broker.bootstrap_servers, topic, "max.message.bytes", "5000")
    large = [LogRecord(topic, bytes(9000))]
    with pytest.raises(RefusedRecord, match="MessageSizeTooLarge"):
        await producer.commit(0, [], large)
    producer = await cluster.fence(name)
    with pytest.raises(RefusedRecord, match="does not fit"):
        await producer.commit(0, [], large)


@pytest.mark.parametrize("loaded", [True, False])
async def test_a_missing_c_extension_is_said_loudly(monkeypatch, caplog, loaded):
    """Otherwise somebody looks for a factor of 20 for a week."""
    from snapreplay.service.config.settings import Settings

    monkeypatch.setattr(module, "c_extension_loaded", lambda: loaded)
    with caplog.at_level(logging.WARNING):
        KafkaCluster(Settings())
    assert ("without its C extension" in caplog.text) is not loaded

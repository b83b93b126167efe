"""Appending snapshots: acknowledged offsets, no transaction, and an end to it."""

import time

import pytest

from snapreplay.service.core.kafka_errors import RefusedRecord, Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaAppender
from snapreplay.service.ports import LogRecord
from tests.support.deadlines import scaled
from tests.support.kafka import Since, hasty, values_of
from tests.support.wire import PRODUCE, Proxy, once


async def test_a_chunk_above_the_topics_limit_is_refused_with_the_topic(cluster, new_topic):
    """The snapshot is abandoned with the reason; nothing hangs."""
    topic, appender = await new_topic(1, max_message_bytes="50000"), await cluster.appender()
    with pytest.raises(RefusedRecord) as caught:
        await appender.append(LogRecord(topic, b"x" * 60_000), 0)
    assert caught.value.facts["topic"] == topic


async def test_a_lost_answer_does_not_double_a_chunk(broker, cluster, new_topic):
    """The repetition is recognised by its sequence number and answered with the same offset."""
    topic, proxy = await new_topic(), Proxy(broker.bootstrap_servers)
    async with proxy.through():
        appender = await cluster.appender()
        proxy.fault = once(PRODUCE, "reset after")
        assert await appender.append(LogRecord(topic, b"1"), 0) == 0
        assert await appender.append(LogRecord(topic, b"2"), 0) == 1
        await appender.close()
    assert proxy.seen[PRODUCE] == 3
    assert await values_of(cluster, topic) == [b"1", b"2"]


async def test_an_unknown_offset_abandons_the_snapshot(settings, new_topic):
    """Stored, but at an unknown offset: a manifest could never point to it."""

    class Duplicate(KafkaAppender):
        async def _append(self, record, partition):
            return -1

    appender = Duplicate(settings)
    await appender.start()
    with pytest.raises(RefusedRecord, match="offset is unknown"):
        await appender.append(LogRecord(await new_topic(), b"x"), 0)
    await appender.close()


async def test_without_answers_it_ends_at_the_deadline_and_leaves_nothing(broker, new_topic):
    """append and close are bounded although the client would try for ever."""
    topic, proxy, since = await new_topic(), Proxy(broker.bootstrap_servers), Since(broker.bootstrap_servers)
    settings = hasty(broker.bootstrap_servers, 500, commit_ms=1500)
    async with proxy.through():
        appender = await KafkaCluster(settings).appender()
        proxy.fault = lambda key: "mute" if key == PRODUCE else "pass"
        started = time.monotonic()
        with pytest.raises(Unreachable, match="appending"):
            await appender.append(LogRecord(topic, b"x"), 0)
        await appender.close()
        await appender.close()
        assert time.monotonic() - started < scaled(15)
    assert not since.tasks

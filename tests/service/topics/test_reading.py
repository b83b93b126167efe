"""The last records of a partition, whatever lies between them."""

from __future__ import annotations

import pytest

from snapreplay.app.record import Output
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import NewTopic, TopicPartition
from snapreplay.service.topics.reading import newest
from tests.support.kafka import decided
from tests.support.stage import settings_for

pytestmark = pytest.mark.kafka


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

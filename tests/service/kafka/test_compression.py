"""Inputs are compressed by whoever writes them: every codec of Kafka must be readable."""

import sys

import pytest
from confluent_kafka import Producer

from snapreplay.errors import StopError
from snapreplay.service.ports import TopicPartition
from tests.support.kafka import values_of


def produce_compressed(broker, topic, codec):
    """Three records that are worth compressing."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec})
    for number in range(3):
        producer.produce(topic, b"%d" % number * 1000, partition=0)
    producer.flush(10)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_readable(broker, cluster, new_topic, codec):
    """What was written compressed is read as it was before."""
    topic = await new_topic()
    produce_compressed(broker, topic, codec)
    assert await values_of(cluster, topic) == [b"%d" % number * 1000 for number in range(3)]


async def test_a_codec_that_is_missing_stops_and_says_what_to_install(broker, cluster, new_topic, monkeypatch):
    """Retrying would never help: the partition must be FAILED with the package's name; with it, it is read. What comes
    before it in the same fetch is given out first."""
    topic = await new_topic()
    produce_compressed(broker, topic, "none")
    produce_compressed(broker, topic, "lz4")
    reader, before = await cluster.reader(), 0
    with monkeypatch.context() as without:
        without.setattr("aiokafka.codec.cramjam", None)
        assert "cramjam" in sys.modules
        with pytest.raises(StopError, match=f"compressed.* reading {topic}-0 from offset 3 on") as stopped:  # noqa: PT012 - a loop
            async for records in reader.read(TopicPartition(topic, 0), 0, 6):
                before += len(records)
    await reader.close()
    assert before == 3
    assert "install the cramjam package" in stopped.value.hint
    assert len(await values_of(cluster, topic)) == 6

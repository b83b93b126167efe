"""A compacted input of a transactional Java producer: its cleaner leaves control batches without records."""

import asyncio
import subprocess

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.app.record import Output
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.devbroker.jars import ensure
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import NewTopic, TopicPartition
from snapreplay.service.topics.reading import reading
from tests.support.deadlines import scaled, within
from tests.support.kafka import until_async
from tests.support.stage import settings_for
from tests.support.steady import KEEPS_LEADERS

pytestmark = [pytest.mark.kafka, pytest.mark.whole]

PRODUCER = """
import java.util.Properties;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

public class Commits {
  public static void main(String[] given) throws Exception {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", given[0]);
    settings.put("transactional.id", given[1]);
    settings.put("key.serializer", StringSerializer.class.getName());
    settings.put("value.serializer", StringSerializer.class.getName());
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
      producer.initTransactions();
      for (int n = 0; n < 3; n++) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(given[1], "a", "" + n));
        producer.commitTransaction();
        Thread.sleep(300);  // the age after which the next record begins a segment
      }
    }
  }
}
"""
CLEANER = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
}


def commit_three(servers: str, topic: str, folder) -> None:
    kafka, source = ensure(), folder / "Commits.java"
    source.write_text(PRODUCER)
    words = [str(kafka.java), "-cp", kafka.class_path, str(source), servers, topic]
    done = subprocess.run(words, capture_output=True, text=True, timeout=scaled(60), check=False)
    assert done.returncode == 0, done.stderr


async def refuses(servers: str, topic: str) -> bool:
    """Say whether the client by itself refuses what the cleaner has left."""
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([ClientPartition(topic, 0)])
        await consumer.seek_to_beginning()
        await consumer.getmany(timeout_ms=1000)
    except KafkaError as error:
        return "did not contain any records" in str(error)
    finally:
        await consumer.stop()
    return False


async def test_control_batches_that_a_cleaner_has_emptied_are_passed(unique, tmp_path):
    """Three transactions of one key, which is overwritten. Since KIP-890 each has a producer epoch of its own, so the
    cleaner keeps the last batch of each, and takes the marker out of it."""
    with LocalBroker(properties={**KEEPS_LEADERS, **CLEANER}, deadline_s=scaled(60)) as broker:
        settings, topic = settings_for(broker.bootstrap_servers), unique("changelog")
        cluster, place = KafkaCluster(settings), TopicPartition(topic, 0)
        await cluster.create_topics([NewTopic(topic, 1, config=COMPACTED)])
        await asyncio.to_thread(commit_three, broker.bootstrap_servers, topic, tmp_path)
        feeder = KafkaFeeder(settings)
        await feeder.start()

        async def overwritten() -> int:
            """The cleaner leaves the last segment alone; each record begins another one."""
            ((_, offset),) = await feeder.feed([Output(topic, b"a", b"last", 0, False, None)])
            return offset if await refuses(broker.bootstrap_servers, topic) else 0

        last_offset = await until_async(overwritten, bool)
        async with within(30), reading(cluster) as reader:
            bounds = await reader.bounds(place)
            found = [record async for some in reader.read(place, *bounds) for record in some]
        await feeder.close()
    assert bounds == (0, last_offset + 1)
    assert found[-1].offset == last_offset
    assert {each.value for each in found} <= {b"0", b"1", b"2", b"last"}

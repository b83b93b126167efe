"""A log with gaps, as compaction leaves them: ours are never compacted, but the search must not count offsets."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic, TopicPartition
from snapreplay.service.topics.increments import last_increment
from snapreplay.snapshots.format.envelope import encode, headers_of
from tests.support.entries import increment
from tests.support.history import history
from tests.support.kafka import decided

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

EAGER = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
BATCHES, KEYS = 30, 3


@pytest.fixture
def compacting() -> Iterator[LocalBroker]:
    """One that looks for something to compact ten times a second."""
    with LocalBroker(properties={"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


async def test_windows_step_over_gaps(
    compacting: LocalBroker, unique: Callable[[str], str]
) -> None:
    """Thirty transactions over three keys, compacted, and two aborted ones at the tail: the windows give the increment
    that a full scan gives, which "end − 2" does not."""
    servers = compacting.bootstrap_servers
    cluster = KafkaCluster(Settings(kafka={"bootstrap.servers": servers}))
    log = TopicPartition(unique("compacted"), 0)
    await cluster.create_topics([NewTopic(log.topic, 1, config=EAGER)])
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=log.topic) as producer:
        for batch in range(BATCHES):
            await write(producer, log, batch)
        await compacted(producer, servers, log)
        for _ in range(2):
            await producer.begin_transaction()
            await send(producer, log, BATCHES)
            await producer.abort_transaction()
    await decided(cluster, log)
    reader = await cluster.reader()
    try:
        bounds = await reader.bounds(log)
        # As `init` does it, without a claim: a compacted topic takes no record without a key.
        found = await last_increment(reader, log, bounds)
        naive = [s async for s in reader.read(log, bounds.end_offset - 2, bounds.end_offset)]
    finally:
        await reader.close()
    told = await asyncio.to_thread(history, servers, *log)
    assert found is not None
    assert found.offset == told.last_before(bounds.end_offset)
    assert naive == []


async def send(producer: AIOKafkaProducer, log: TopicPartition, batch: int) -> None:
    entry, key = increment(batch), b"%d" % (batch % KEYS)
    headers = list(headers_of(entry))
    await producer.send_and_wait(log.topic, encode(entry), key, 0, headers=headers)


async def write(producer: AIOKafkaProducer, log: TopicPartition, batch: int) -> None:
    async with producer.transaction():
        await send(producer, log, batch)


async def compacted(producer: AIOKafkaProducer, servers: str, log: TopicPartition) -> None:
    """Wait until most of the old increments are gone: with each further one the segment before may be closed and
    cleaned."""
    written = BATCHES
    async with asyncio.timeout(120):
        while True:
            told = await asyncio.to_thread(history, servers, *log)
            if len(told.increments) < written / 2:
                return
            await write(producer, log, written)
            written += 1

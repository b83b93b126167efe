"""A cluster object on the session's broker, and topics by the dozen."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaAppender
from snapreplay.service.kafka.producer import KafkaProducer
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.kafka.throttling import THROTTLING
from snapreplay.service.ports import NewTopic, TopicPartition


@pytest.fixture(autouse=True)
def no_quota_is_left(monkeypatch):
    """What a test has been throttled for is no trouble of the tests after it."""
    monkeypatch.setattr(THROTTLING, "_waits", {})


@pytest.fixture
def settings(broker):
    return Settings(kafka={"bootstrap.servers": broker.bootstrap_servers})


class Closing(KafkaCluster):
    """Closes the clients that a failed test has left open."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.left = AsyncExitStack()

    async def reader(self, **how: Any) -> KafkaReader:
        reader = await super().reader(**how)
        self.left.push_async_callback(reader.close)
        return reader

    async def fence(self, transactional_id: str) -> KafkaProducer:
        producer = await super().fence(transactional_id)
        self.left.push_async_callback(producer.discard)
        return producer

    async def appender(self) -> KafkaAppender:
        appender = await super().appender()
        self.left.push_async_callback(appender.close)
        return appender


@pytest.fixture
async def cluster(settings):
    """The session's broker. A test need not close what it gets here."""
    made = Closing(settings)
    async with made.left:
        yield made


@pytest.fixture
def new_topic(cluster) -> Callable[..., Awaitable[str]]:
    """`await new_topic(partitions=4, **config)` gives the name of a topic of this test alone."""

    async def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:10]}"
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        await cluster.create_topics([NewTopic(name, partitions, config=dotted)])
        reader = await cluster.reader()  # a new partition's leader may refuse a request for a moment
        await reader.bounds_of([TopicPartition(name, number) for number in range(partitions)])
        await reader.close()
        return name

    return make

"""A cluster object on the session's broker, and topics by the dozen."""

import uuid
from collections.abc import Awaitable, Callable

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic


@pytest.fixture
def settings(broker):
    """Default settings for the session's broker."""
    return Settings(kafka={"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def cluster(settings):
    """The way to the session's broker."""
    return KafkaCluster(settings)


@pytest.fixture
def new_topic(cluster) -> Callable[..., Awaitable[str]]:
    """`await new_topic(partitions=4, **config)` gives the name of a topic nobody else has."""

    async def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:10]}"
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        await cluster.create_topics([NewTopic(name, partitions, config=dotted)])
        return name

    return make

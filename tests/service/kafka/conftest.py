"""A cluster object on the session's broker, topics by the dozen, and what is left of a closed client."""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable

import psutil
import pytest

from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic, TopicPartition
from snapreplay.service.settings import Settings


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


async def values_of(cluster, topic, partition=0):
    """All committed values of a partition, in order."""
    reader = await cluster.reader()
    try:
        source = TopicPartition(topic, partition)
        bounds = await reader.bounds(source)
        slices = [s async for s in reader.read(source, *bounds)]
        return [record.value for records in slices for record in records]
    finally:
        await reader.close()


async def until(holds, seconds=20.0):
    """Wait for a condition; the test fails when it does not come true in time."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def sockets_to(bootstrap_servers):
    """Open connections of this process to a broker."""
    port = int(bootstrap_servers.rpartition(":")[2])
    found = psutil.Process(os.getpid()).net_connections(kind="tcp")
    return [c for c in found if c.raddr and c.raddr.port == port and c.status == "ESTABLISHED"]


def client_tasks():
    """Tasks that belong to aiokafka."""
    return [task for task in asyncio.all_tasks() if "aiokafka" in repr(task.get_coro())]

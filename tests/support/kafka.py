"""Looking at a real cluster, and at what is left of a closed client."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psutil

from snapreplay.service.config.groups import TimeoutSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.producer import KafkaProducer
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics.reading import decided_bounds, reading
from tests.support.deadlines import scaled, within
from tests.support.waiting import pause

T = TypeVar("T")
HASTY_MS_MAX, HASTE_MIN, HASTE_MAX = 5000, 2.0, 5.0
"""Longer deadlines of a test would not fit the default ones beside them. A machine pauses for a moment also when
it was not busy in the last minute."""


def hasty(bootstrap_servers: str, request_ms: int, **timeouts: int) -> Settings:
    """Give up a request after this time, in milliseconds. It and the timeouts are at least doubled. On a busy machine
    they are longer: so are the answers of a broker, and a client sends its first request only once."""
    factor = min(max(scaled(1), HASTE_MIN), HASTE_MAX)
    patience_ms = max(request_ms, min(int(request_ms * factor), HASTY_MS_MAX))
    kafka: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "request.timeout.ms": patience_ms}
    return Settings(kafka=kafka, timeouts=TimeoutSettings(**{name: int(ms * factor) for name, ms in timeouts.items()}))


async def values_of(cluster: KafkaCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """All committed values of a partition, in order; waits until no transaction is open on it."""
    source = TopicPartition(topic, partition)
    await decided(cluster, source)
    async with reading(cluster) as reader:
        bounds = await reader.bounds(source)
        slices = [s async for s in reader.read(source, *bounds)]
        return [record.value for records in slices for record in records]


async def decided(cluster: KafkaCluster, source: TopicPartition) -> None:
    """Wait until every transaction there has its marker: a commit's answer comes before it."""
    async with within(30):
        await decided_bounds(cluster, source)


async def until_async(ask: Callable[[], Awaitable[T]], holds: Callable[[T], object]) -> T:
    """Ask again and again until the answer is right; the test fails when that takes 30 s."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with within(30):
        while not holds(answer := await ask()):  # noqa: ASYNC110 - what is waited for knows no events
            await asyncio.sleep(pause(loop.time() - began))
    return answer


def sockets_to(bootstrap_servers: str) -> list[object]:
    """Open connections of this process to a broker."""
    port = int(bootstrap_servers.rpartition(":")[2])
    found = psutil.Process(os.getpid()).net_connections(kind="tcp")
    return [c for c in found if c.raddr and c.raddr.port == port and c.status == "ESTABLISHED"]


def client_tasks() -> list[asyncio.Task[object]]:
    """Tasks of clients, a reader's fetches among them."""

    def source(task: asyncio.Task[object]) -> str:
        code = getattr(task.get_coro(), "cr_code", None)
        return code.co_filename if code else ""

    return [t for t in asyncio.all_tasks() if "/aiokafka/" in source(t) or "/service/kafka/" in source(t)]


class Since:
    """Tells what is there of clients and was not when it was made. What earlier tests have left may end meanwhile."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._before = {*sockets_to(bootstrap_servers), *client_tasks()}

    @property
    def sockets(self) -> set[object]:
        return {*sockets_to(self._servers)} - self._before

    @property
    def tasks(self) -> set[object]:
        return {task for task in client_tasks() if task not in self._before}


class Overtaken(KafkaProducer):
    """A producer to whom something happens when everything is sent and nothing committed."""

    meanwhile = staticmethod(lambda: asyncio.sleep(0))

    async def _send(self, batches, outputs):
        bases = await super()._send(batches, outputs)
        await self.meanwhile()
        return bases


async def overtaken(cluster, settings, transactional_id, meanwhile):
    producer = Overtaken(settings, transactional_id, cluster.limits_of)
    producer.meanwhile = meanwhile
    await producer.start(scaled(15))
    return producer

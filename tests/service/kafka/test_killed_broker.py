"""Tests of what becomes of our clients when their broker dies: a broker of one's own, killed again and again."""

import asyncio
import time

import psutil
import pytest

from snapreplay.app.record import Output
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.core.kafka_errors import CommitInDoubt, Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.fetches import Fetch
from snapreplay.service.kafka.shared import Client
from snapreplay.service.ports import LogRecord, NewTopic, TopicPartition
from tests.support.deadlines import scaled
from tests.support.kafka import Since, hasty, overtaken, values_of

pytestmark = pytest.mark.kafka
"""A request times out later than anything here takes, however busy the machine is."""


@pytest.fixture(scope="module")
def broker_of_our_own():
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def mortal(broker_of_our_own):
    """It runs when a test begins."""
    if not psutil.pid_exists(broker_of_our_own.pid):
        broker_of_our_own.restart()
    return broker_of_our_own


def settings_for(mortal, **timeouts):
    return hasty(mortal.bootstrap_servers, 500, **timeouts)


@pytest.mark.whole
async def test_a_read_continues_when_it_returns(mortal, unique):
    """SIGKILL in the middle of a read: the same call ends with every record once, in order."""
    cluster, source = KafkaCluster(settings_for(mortal)), TopicPartition(unique("read"), 0)
    await cluster.create_topics([NewTopic(source.topic, 1)])
    producer = await cluster.fence(unique("app"))
    for _ in range(6):
        await producer.commit(0, [], [LogRecord(source.topic, b"x" * 300_000)] * 6)
    await producer.discard()
    reader, offsets = await cluster.reader(), []
    restart: asyncio.Task[None] | None = None
    async for records in reader.read(source, 0, 42):
        offsets += [record.offset for record in records]
        if restart is None:
            await asyncio.to_thread(mortal.kill)
            restart = asyncio.create_task(asyncio.to_thread(mortal.restart))
    assert restart is not None
    await restart
    assert offsets == [offset for offset in range(42) if offset % 7 != 6]
    assert (await reader.bounds(source)).end_offset == 42
    await reader.close()


@pytest.mark.whole
async def test_a_transaction_leaves_neither_task_nor_socket_nor_record(mortal, unique):
    """SIGKILL between send and commit: doubt at the deadline; after the restart the fence aborts it."""
    settings, topic, app = settings_for(mortal, commit_ms=3000), unique("cut"), unique("app")
    cluster, since = KafkaCluster(settings), Since(mortal.bootstrap_servers)
    await cluster.create_topics([NewTopic(topic, 1)])
    producer = await overtaken(cluster, settings, app, lambda: asyncio.sleep(0))
    await producer.commit(0, [], [LogRecord(topic, b"kept")])
    producer.meanwhile = lambda: asyncio.to_thread(mortal.kill)
    started = time.monotonic()
    output = Output(topic, b"k", b"v", None, False, None)
    with pytest.raises(CommitInDoubt):
        await producer.commit(0, [output], [LogRecord(topic, b"lost")])
    assert time.monotonic() - started < scaled(20)
    with pytest.raises(Unreachable):
        await cluster.fence(app)
    assert not since.tasks
    assert not since.sockets
    await asyncio.to_thread(mortal.restart)
    renewed = await cluster.fence(app)
    await renewed.commit(0, [], [LogRecord(topic, b"after")])
    await renewed.discard()
    assert await values_of(cluster, topic) == [b"kept", b"after"]


@pytest.mark.whole
async def test_a_reader_tries_a_broker_that_is_gone_less_and_less_often(mortal, unique, monkeypatch):
    """Each partition has a reader: twenty of them took a third of a core. When the broker is back, it reads on."""
    cluster, source = KafkaCluster(settings_for(mortal)), TopicPartition(unique("gone"), 0)
    await cluster.create_topics([NewTopic(source.topic, 1)])
    loop, send, tried = asyncio.get_running_loop(), Client.send, list[object]()

    async def noted(client, node, request, **more):
        if isinstance(request, Fetch):
            tried.append(request)
        return await send(client, node, request, **more)

    monkeypatch.setattr(Client, "send", noted)
    reader = await cluster.reader(patient=True)
    await reader.follow({source: 0})
    assert await reader.poll(1, 100) == {}
    await asyncio.to_thread(mortal.kill)
    began, before = loop.time(), len(tried)
    while len(tried) < before + 6:
        assert await reader.poll(1, 100) == {}
    assert loop.time() - began > 1.5
    await asyncio.to_thread(mortal.restart)
    producer = await cluster.fence(unique("app"))
    await producer.commit(0, [], [LogRecord(source.topic, b"x")])
    await producer.discard()
    while not (fetched := await reader.poll(1, 100)):
        pass
    assert [record.value for record in fetched[source]] == [b"x"]
    await reader.close()

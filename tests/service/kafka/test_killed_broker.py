"""Tests of what becomes of our clients when their broker dies: a broker of one's own, killed again and again."""

import asyncio
import gc
import time

import psutil
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from snapreplay.app.record import Output
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.core.kafka_errors import CommitInDoubt, Unreachable
from snapreplay.service.kafka import fetch_by_id, shutdown
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.config import producer_arguments
from snapreplay.service.kafka.shutdown import cut_producer
from snapreplay.service.ports import LogRecord, NewTopic, TopicPartition
from tests.support.deadlines import scaled, within
from tests.support.kafka import Since, hasty, overtaken, values_of
from tests.support.stage import until

pytestmark = pytest.mark.kafka
LONG_MS = 60_000
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
async def test_a_read_goes_on_when_it_returns(mortal, unique):
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


async def cut_in_the_middle_of_everything(mortal, settings, topic):
    """A transaction is open, a send answered, one not, a commit waits, and the broker is dead."""
    producer = AIOKafkaProducer(**producer_arguments(settings, topic))
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"1", partition=0)
    await asyncio.to_thread(mortal.kill)
    unanswered = await producer.send(topic, b"2", partition=1)
    commit = asyncio.create_task(producer.commit_transaction())
    await asyncio.wait([unanswered, commit], timeout=0.5)
    # Cancelled alone, the sender would wait for its requests and, cancelled again, leave all but one behind.
    await until(lambda: len(shutdown._tasks(producer._sender.sender_task)) > 1, "requests under way")
    started = time.monotonic()
    await cut_producer(producer)
    assert time.monotonic() - started < LONG_MS / 2000
    for waiter in (unanswered, commit):
        with pytest.raises(KafkaError, match="discarded"):
            async with within(10):
                await waiter


async def test_cutting_a_producer_ends_everything_at_once(mortal, unique):
    """No task, no socket, no waiter and no complaint of asyncio is left, long before a request times out."""
    settings = settings_for(mortal)
    settings = settings.replaced(kafka={**settings.kafka, "request.timeout.ms": LONG_MS})
    topic, complaints, loop = unique("all"), [], asyncio.get_running_loop()
    await KafkaCluster(settings).create_topics([NewTopic(topic, 2)])
    since = Since(mortal.bootstrap_servers)
    gc.collect()  # what earlier tests have left is none of it
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        await cut_in_the_middle_of_everything(mortal, settings, topic)
        assert not since.tasks
        assert not since.sockets
        gc.collect()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    assert complaints == []


@pytest.mark.whole
async def test_a_reader_tries_a_broker_that_is_gone_less_and_less_often(mortal, unique, monkeypatch):
    """Each partition has a reader: twenty of them took a third of a core. When the broker is back, it reads on."""
    cluster, source = KafkaCluster(settings_for(mortal)), TopicPartition(unique("gone"), 0)
    await cluster.create_topics([NewTopic(source.topic, 1)])
    loop, send, tried = asyncio.get_running_loop(), fetch_by_id._WatchedClient.send, list[object]()

    async def noted(client, *request, **more):
        tried.append(request)
        return await send(client, *request, **more)

    monkeypatch.setattr(fetch_by_id._WatchedClient, "send", noted)
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

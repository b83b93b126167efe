"""Ending clients in bounded time."""

import asyncio
import gc
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka import shutdown
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.config import producer_arguments
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.kafka.shutdown import bounded, close_client, close_consumer, cut_producer
from snapreplay.service.ports import NewTopic
from tests.support.kafka import client_tasks, sockets_to, until


async def test_bounded_cuts_what_takes_too_long_and_swallows_errors():
    """True when it ended by itself, whatever the end; False when it had to be cancelled."""

    async def fail():
        raise ValueError

    async def cancelled():
        raise asyncio.CancelledError

    ended = []

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    assert await bounded(asyncio.sleep(0), 1)
    assert await bounded(fail(), 1)
    assert await bounded(cancelled(), 1)
    assert not await bounded(endless(), 0.02)
    assert ended == [True]


async def test_bounded_passes_on_our_own_cancellation():
    """Whoever closes may be cancelled too, and then so is the work."""
    ended = asyncio.Event()

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    closer = asyncio.create_task(bounded(endless(), 60))
    await asyncio.sleep(0)
    closer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closer
    await asyncio.wait_for(ended.wait(), 1)


@pytest.mark.kafka
async def test_a_consumer_that_does_not_stop_is_cut(broker, monkeypatch):
    """Its connections are closed over its head."""
    monkeypatch.setattr(shutdown, "CLOSE_S", 0.1)
    sockets = len(sockets_to(broker.bootstrap_servers))
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    await consumer.start()
    await consumer._client.ready(consumer._client.get_random_node())
    stop = consumer.stop
    consumer.stop = lambda: asyncio.sleep(60)
    await close_consumer(consumer)
    await until(lambda: len(sockets_to(broker.bootstrap_servers)) == sockets)
    await stop()


@pytest.mark.kafka
async def test_a_client_is_closed_twice_without_complaint(broker):
    """Closing is called from error paths that do not know what has happened before."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    await consumer.start()
    await close_consumer(consumer)
    await close_client(consumer._client)


@pytest.mark.kafka
async def test_a_producer_that_never_started_is_cut(settings):
    """The deadline of a fence can pass before there is a sender."""
    producer = AIOKafkaProducer(**producer_arguments(settings, "never"))
    await cut_producer(producer)


async def cut_in_the_middle_of_everything(local, settings):
    """A transaction is open, a send answered, one not, a commit waits, and the broker is dead."""
    producer = AIOKafkaProducer(**producer_arguments(settings, "app"))
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"1", partition=0)
    await asyncio.to_thread(local.kill)
    unanswered = await producer.send("t", b"2", partition=1)
    commit = asyncio.create_task(producer.commit_transaction())
    await asyncio.wait([unanswered, commit], timeout=0.5)
    # Cancelled alone, the sender would wait for its requests and, cancelled again, leave all but one behind.
    assert len(shutdown._tasks(producer._sender.sender_task)) > 1
    started = time.monotonic()
    await cut_producer(producer)
    assert time.monotonic() - started < 1
    for waiter in (unanswered, commit):
        with pytest.raises(KafkaError, match="discarded"):
            await asyncio.wait_for(waiter, 1)


@pytest.mark.kafka
async def test_cutting_with_the_broker_dead_ends_everything_at_once():
    """No task, no socket, no waiter and no complaint of asyncio is left, within a second."""
    complaints = []
    with LocalBroker() as local:
        settings = Settings(
            kafka={"bootstrap.servers": local.bootstrap_servers, "request.timeout.ms": 5000}
        )
        await KafkaCluster(settings).create_topics([NewTopic("t", 2)])
        tasks = len(client_tasks())
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        try:
            await cut_in_the_middle_of_everything(local, settings)
            assert len(client_tasks()) == tasks
            assert sockets_to(local.bootstrap_servers) == []
            gc.collect()
            await asyncio.sleep(0)
        finally:
            loop.set_exception_handler(None)
    assert complaints == []


@pytest.mark.parametrize("what", ["reader", "appender", "fence", "topic_names"])
async def test_a_start_that_is_cancelled_leaves_no_connection(
    cluster, settings, unique, what, monkeypatch
):
    """Cancelled while it waits for its first metadata a client would forget that connection, and nobody close it."""
    send, asked = AIOKafkaConnection.send, []

    def interrupted(self, request, **keywords):
        asked.append(type(request).__name__)
        if asked[-1] == "MetadataRequest" and asked.count("MetadataRequest") == 1:
            asyncio.get_running_loop().call_soon(task.cancel)
        return send(self, request, **keywords)

    monkeypatch.setattr(AIOKafkaConnection, "send", interrupted)
    before, tasks = len(sockets_to(settings.bootstrap_servers[0])), set(client_tasks())
    arguments = (unique("fence"),) if what == "fence" else ()
    task = asyncio.create_task(getattr(cluster, what)(*arguments))
    await asyncio.wait({task})
    assert task.cancelled()
    gc.collect()
    await until(lambda: len(sockets_to(settings.bootstrap_servers[0])) == before, 5)
    assert not set(client_tasks()) - tasks


@pytest.mark.kafka
@pytest.mark.parametrize("turns", range(5))
async def test_a_close_that_is_cancelled_leaves_no_client(settings, turns):
    """Whoever closes is cut off after so many turns of the loop: the client ends all the same."""
    before, tasks = len(sockets_to(settings.bootstrap_servers[0])), set(client_tasks())
    reader = KafkaReader(settings, read_committed=True, large=False)
    await reader.start()
    consumer = reader._consumer
    assert consumer is not None
    close = asyncio.create_task(reader.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    close.cancel()
    await asyncio.wait({close})
    assert consumer._closed or turns == 0
    if turns == 0:  # cut off before its first step: it is still to be closed
        await reader.close()
    await until(lambda: len(sockets_to(settings.bootstrap_servers[0])) == before, 5)
    assert not set(client_tasks()) - tasks


@pytest.mark.kafka
async def test_a_reader_closed_while_it_connects_leaves_no_client(settings):
    """Two tasks: one connects, the other one closes; there was nothing to close yet."""
    before = len(sockets_to(settings.bootstrap_servers[0]))
    reader = KafkaReader(settings, read_committed=True, large=False)
    start = asyncio.create_task(reader.start())
    await asyncio.sleep(0)
    await reader.close()
    with pytest.raises(Unreachable, match="closed"):
        await start
    await until(lambda: len(sockets_to(settings.bootstrap_servers[0])) == before, 5)

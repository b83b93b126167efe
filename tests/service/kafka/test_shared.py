"""Clients of one loop share some things and do not share others, on a real broker."""

import asyncio
import time
from typing import Any

import pytest
from aiokafka.protocol.metadata import MetadataRequest

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka import connection
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.refusals import NotConnected
from snapreplay.service.kafka.shared import REPEATED_SECONDS, BrokerNode, Client, Shared
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.support.deadlines import within
from tests.support.kafka import Since, hasty
from tests.support.stage import until
from tests.support.wire import METADATA, Proxy

pytestmark = pytest.mark.kafka
FETCH = 1


@pytest.fixture
def alone(broker):
    """A cluster that no other test uses."""
    return KafkaCluster(hasty(broker.bootstrap_servers, 5000))


async def test_what_a_client_gives_back_the_next_one_takes(alone, broker, new_topic, unique):
    """Ten readers and ten transactions, one after the other, need no connection that the first of them did not need.
    Nothing is left of the last one."""
    topic, name, since = await new_topic(), unique("app"), Since(broker.bootstrap_servers)
    first, producer = await alone.reader(), await alone.fence(name)
    place, counted = TopicPartition(topic, 0), set()
    for number in range(10):
        await producer.commit(0, [], [LogRecord(topic, b"%d" % number)])
        reader = await alone.reader(read_committed=False)
        end_offset = (await reader.bounds(place)).end_offset
        read = [record.value async for records in reader.read(place, 0, end_offset) for record in records]
        assert read == [b"%d" % each for each in range(number + 1)]
        await reader.close()
        counted.add(len(since.sockets))
    assert max(counted) <= 5, "metadata, the coordinator, the leader, and a reader that still drains"
    await producer.discard()
    await first.close()
    await until(lambda: not since.sockets)
    assert not since.tasks


async def test_what_is_held_stays_open_between_one_client_and_the_next(alone, broker):
    """As long as it is held: a service asks one question after the other, each with a client of its own."""
    since = Since(broker.bootstrap_servers)
    alone.hold()
    await alone.facts()
    held = since.sockets
    assert held
    await alone.facts()
    assert since.sockets == held
    await alone.let_go()
    await until(lambda: not since.sockets)


async def test_what_has_just_been_answered_is_not_asked_at_once(broker):
    """All clients whose partition has no leader ask as fast as brokers answer."""
    proxy, loop = Proxy(broker.bootstrap_servers), asyncio.get_running_loop()
    async with proxy.through():
        shared = Shared(hasty(broker.bootstrap_servers, 5000))
        await shared.enter()
        asked, began = proxy.seen[METADATA], loop.time()
        for _ in range(5):
            both = shared.refresh(), shared.refresh(["another"])
            assert all(await asyncio.gather(*both))
        assert proxy.seen[METADATA] == asked + 5
        assert loop.time() - began > 4 * REPEATED_SECONDS
        await shared.leave()


async def test_a_question_under_way_is_waited_for_until_the_last_user_leaves(broker):
    """A group's leader that did not wait would assign no partitions."""
    proxy = Proxy(broker.bootstrap_servers)
    async with proxy.through():
        shared = Shared(hasty(broker.bootstrap_servers, 5000))
        await shared.enter()
        asked = proxy.seen[METADATA]
        proxy.fault = lambda key: "mute" if key == METADATA else "pass"
        known = shared.track(["another"])
        await until(lambda: proxy.seen[METADATA] > asked)
        pending = asyncio.create_task(shared.pending())
        await asyncio.sleep(0)
        again = shared.track(["another"])
        assert not pending.done()
        assert not again.done(), "of a topic that is only asked for"
        later = shared.refresh()
        await shared.leave()
        async with within(2):
            assert not any([await known, await again, await later])
            await pending


async def test_a_broker_that_names_no_brokers_is_asked_on_one_connection(broker, monkeypatch):
    """However often: a broker that the controller has fenced answers so."""
    since = Since(broker.bootstrap_servers)
    shared = Shared(hasty(broker.bootstrap_servers, 5000))
    await shared.enter()
    with monkeypatch.context() as patch:
        patch.setattr(shared, "_known", lambda *_: False)
        for _ in range(3):
            assert not await shared.refresh()
    await until(lambda: len(since.sockets) == 1)
    await shared.leave()


async def test_an_outage_that_is_over_is_no_reason_of_the_next(broker):
    """A broker has answered since, or the last client has left."""
    proxy = Proxy(broker.bootstrap_servers)
    async with proxy.through():
        shared = Shared(hasty(broker.bootstrap_servers, 5000))
        await shared.enter()
        for is_left in (False, True):
            proxy.fault = lambda key: "reset before" if key == METADATA else "pass"
            with pytest.raises(NotConnected) as outage:
                await shared.freshen()
            assert outage.value.failures
            proxy.fault = lambda _: "pass"
            if is_left:
                await shared.leave()
            else:
                assert await shared.refresh()
            assert not shared._failures


def test_an_unused_connection_that_was_lost_is_closed():
    """So is one whose login ends. One that waits for an answer or a quota is left there, and the next one is taken."""

    class Connection:
        host, port, closed = "h", 1, False

        def __init__(
            self, is_open: bool = True, is_due: bool = False, oldest: object = None, muted_s: float = 0.0
        ) -> None:
            self.is_open, self.is_due, self.oldest = is_open, is_due, oldest
            self.muted_until = time.monotonic() + muted_s

        def close(self) -> None:
            self.closed = True

    shared, lost, due, whole = Shared(Settings()), Connection(is_open=False), Connection(is_due=True), Connection()
    waiting = [Connection(oldest=object()), Connection(muted_s=3600)]
    idle: list[Any] = [whole, lost, due, *waiting]
    node = BrokerNode(7, "h", 1)
    shared._idle[node] = idle
    taken: Any = shared.take(node)
    assert taken is whole
    assert (lost.closed, due.closed, whole.closed) == (True, True, False)
    assert shared.take(node) is None
    assert idle == waiting


async def test_a_client_does_not_wait_behind_another_ones_request(broker, new_topic, unique):
    """One reader waits for an answer that does not come; another reads meanwhile, and a third one afterwards."""
    topic, proxy = await new_topic(), Proxy(broker.bootstrap_servers)
    settings = hasty(broker.bootstrap_servers, 14_000)
    producer = await KafkaCluster(settings).fence(unique("app"))
    await producer.commit(0, [], [LogRecord(topic, b"there")])
    await producer.discard()
    place = TopicPartition(topic, 0)
    async with proxy.through():
        cluster = KafkaCluster(settings)
        stuck = await cluster.reader(patient=True)
        proxy.fault = lambda key: "mute" if key == FETCH else "pass"
        await stuck.follow({place: 0})
        assert await stuck.poll(1, 500) == {}
        proxy.fault = lambda key: "pass"
        for _ in range(2):
            reader = await cluster.reader()
            assert [r.value async for records in reader.read(place, 0, 1) for r in records] == [b"there"]
            await reader.close()
        assert await stuck.poll(1, 0) == {}
        await stuck.close()


async def test_what_is_idle_for_too_long_is_closed_before_the_broker_does_it(broker):
    """After connections.max.idle.ms, where that is less than the few seconds for which it is kept."""
    settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers, "connections.max.idle.ms": 1000})
    shared = Shared(settings)
    client = Client(shared)
    shared.hold()
    await client.start()
    await shared.refresh()  # on a connection of its own
    node = await client.anybody()
    (held,) = client._held.values()
    await client.close()
    assert shared.take(BrokerNode(node, held.host, held.port)) is held
    shared.give_back(node, held)
    await until(lambda: not held.is_open)
    assert time.monotonic() - held.used_at >= 1.0
    assert shared.take(BrokerNode(node, held.host, held.port)) is None
    await shared.leave()


@pytest.fixture
async def client(broker):
    """A client with one connection."""
    client = Client(Shared(hasty(broker.bootstrap_servers, 5000)))
    await client.start()
    await client.anybody()
    yield client
    await client.close()


async def test_a_request_that_waits_for_a_quota_outlives_the_connection(client):
    """Nothing of it was sent: it is not in doubt."""
    ((node, _), held), *_ = client._held.items()
    held.muted_until = time.monotonic() + 0.2
    sending = asyncio.create_task(client.send(node, MetadataRequest([])))
    await asyncio.sleep(0)
    held.lose(None)
    assert (await sending).brokers


async def test_a_held_connection_that_the_broker_may_close_is_replaced(client, monkeypatch):
    """Before a request is lost with it; unless no other can be made."""
    ((node, _), held), *_ = client._held.items()

    async def refused(*_):
        raise ConnectionRefusedError

    held.used_at -= 600
    with monkeypatch.context() as patch:
        patch.setattr(connection, "connect", refused)
        assert (await client.send(node, MetadataRequest([]))).brokers
    held.used_at -= 500
    assert (await client.send(node, MetadataRequest([]))).brokers
    assert held.is_open
    held.used_at -= 600
    assert (await client.send(node, MetadataRequest([]))).brokers
    assert not held.is_open


async def test_a_connection_is_given_back_when_it_is_answered(client):
    """Else the next client would wait for that answer."""
    (node, _), *_ = client._held
    sending = asyncio.create_task(client.send(node, MetadataRequest([])))
    await asyncio.sleep(0)
    client.give_back()
    assert client._held
    await sending
    client.give_back()
    assert not client._held

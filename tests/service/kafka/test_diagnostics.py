"""Tests of what doctor asks of a real cluster: brokers, replicas, open transactions, and what may be written."""

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics, missing_requests
from snapreplay.service.kafka.shared import Client
from snapreplay.service.ports import TopicPartition
from tests.support.kafka import hasty, until_async
from tests.support.stage import settings_for
from tests.support.wire import ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID, Proxy


@asynccontextmanager
async def asking(servers):
    async with KafkaDiagnostics(settings_for(servers)) as ask:
        yield ask


@asynccontextmanager
async def opened(servers, transactional_id, name):
    """Somebody's transaction with one record, open for the length of the block."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
    await producer.start()
    await producer.begin_transaction()
    try:
        await (await producer.send(name, b"x", partition=0))
        yield
        await producer.abort_transaction()
    finally:
        await producer.stop()


async def ends(servers, partition):
    """Last stable offset and high watermark."""
    cluster = KafkaCluster(settings_for(servers))
    found = []
    for committed in (True, False):
        reader = await cluster.reader(read_committed=committed)
        found.append((await reader.bounds(partition)).end_offset)
        await reader.close()
    return found


async def test_brokers_are_connected_to_one_by_one(broker):
    """Each with what it speaks; nothing of what we need is missing."""
    async with asking(broker.bootstrap_servers) as ask:
        (found,) = await ask.brokers()
        absent = await ask.broker(77, "127.0.0.1:9")
    assert found.reachable
    assert found.address == broker.bootstrap_servers
    assert found.missing == ()
    assert {"DescribeGroups", "Metadata"} < set(missing_requests({3: (0, 9), 15: (0, 3)}))
    assert (absent.reachable, absent.missing) == (False, ())


async def test_replicas_are_those_of_the_topics_asked_for(broker, new_topic, unique):
    """Leader and who is in sync, per partition."""
    name = await new_topic(2)
    async with asking(broker.bootstrap_servers) as ask:
        found = await ask.replicas([name, unique("none")])
    assert sorted(found) == [TopicPartition(name, 0), TopicPartition(name, 1)]
    for each in found.values():
        assert each.replicas == each.in_sync == (each.leader,)


async def test_an_open_transaction_is_found_with_its_id_and_age(broker, new_topic, unique):
    """Where it begins, whose it is, since when; none when it has ended, and unnamed when its id is not known."""
    servers = broker.bootstrap_servers
    name = await new_topic()
    partition, foreign = TopicPartition(name, 0), unique("foreign")
    async with asking(servers) as ask:
        leader = (await ask.replicas([name]))[partition].leader
        assert await ask.open_transaction(partition, leader, [leader]) is None
        assert await ask.holding(partition) is None
        before_ms = wall_ms()
        async with opened(servers, foreign, name):
            found = await ask.open_transaction(partition, leader, [leader])
            assert await ask.holding(partition) == found
            unnamed = await ask.open_transaction(partition, leader, [])
        assert (found.transactional_id, found.start_offset) == (foreign, 0)
        assert before_ms <= found.started_at_ms <= wall_ms()
        assert found.timeout_ms == 60_000
        assert before_ms <= found.last_record_at_ms <= wall_ms()
        assert (unnamed.transactional_id, unnamed.start_offset) == (None, 0)
        await until_async(lambda: ask.open_transaction(partition, leader, [leader]), lambda found: found is None)


async def test_the_probe_leaves_nothing_but_markers(broker, new_topic, unique):
    """No record, nothing held back, nothing open. What does not exist is refused, and the rest is probed all the
    same."""
    servers = broker.bootstrap_servers
    names = [await new_topic() for _ in range(2)]
    partitions = [TopicPartition(name, 0) for name in names]
    async with asking(servers) as ask:
        mine = unique("app-doctor")
        for _ in range(2):  # the second one meets the end of the first
            assert await ask.probe(mine, partitions) == {}
            last = await KafkaCluster(settings_for(servers)).last_fence(mine)
            assert last is not None
            assert last.state in {"PrepareAbort", "CompleteAbort"}
        missing = unique("missing")
        assert list(await ask.probe(mine, [TopicPartition(missing, 0), *partitions])) == [missing]
    for partition in partitions:  # the last marker may come later than the answer
        await until_async(lambda: ends(servers, partition), lambda found: found[0] == found[1])  # noqa: B023 - awaited here


HEARTBEAT, DESCRIBE_TRANSACTIONS = 12, 65


@pytest.mark.parametrize(
    ("key", "question"),
    [
        (HEARTBEAT, "refused"),
        (ADD_PARTITIONS, "refused"),
        (DESCRIBE_TRANSACTIONS, "ending"),
        (INIT_PRODUCER_ID, "probe"),
        (END_TXN, "probe"),
    ],
)
async def test_a_silent_coordinator_is_not_taken_for_a_good_answer(broker, new_topic, unique, key, question):
    """Else doctor would say that nothing is wrong, or that something is not permitted."""
    servers, proxy, mine = broker.bootstrap_servers, Proxy(broker.bootstrap_servers), unique("app")
    written = TopicPartition(await new_topic(), 0)
    given = {"refused": (mine, {mine: written}), "ending": ([mine],), "probe": (mine, [written])}
    async with proxy.through(), KafkaDiagnostics(hasty(servers, 300)) as ask:
        proxy.fault = lambda found: "mute" if found == key else "pass"
        with pytest.raises(Unreachable):
            await getattr(ask, question)(*given[question])


@pytest.mark.parametrize(("code", "is_raised"), [(0, False), (105, False), (53, False), (-1, True)])
async def test_an_error_of_a_description_is_not_the_end_of_no_transaction(code, is_raised, monkeypatch):
    """105: there is no such transactional id. 53: it is not permitted, which another question shows."""
    state: Any = (code, "id", "PrepareCommit" if not code else "", 0, 1, 2, 3, [])

    async def answered(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(transaction_states=[state])

    monkeypatch.setattr(Client, "ask_coordinator", answered)
    asking = KafkaDiagnostics(Settings()).ending(["id"])
    if is_raised:
        with pytest.raises(Unreachable):
            await asking
    else:
        assert list(await asking) == ([] if code else ["id"])

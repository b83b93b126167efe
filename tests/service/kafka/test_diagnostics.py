"""Tests of what doctor asks of a real cluster: brokers, replicas, open transactions, and what may be written."""

from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer

from snapreplay.service.clock import wall_ms
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics, missing_requests
from snapreplay.service.ports import NewTopic, TopicPartition
from tests.support.kafka import until_async
from tests.support.stage import settings_for


async def topic(servers, name, partitions=1):
    """A new one."""
    await KafkaCluster(settings_for(servers)).create_topics([NewTopic(name, partitions)])
    return name


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


async def test_replicas_are_those_of_the_topics_asked_for(broker, unique):
    """Leader and who is in sync, per partition."""
    name = await topic(broker.bootstrap_servers, unique("replicas"), 2)
    async with asking(broker.bootstrap_servers) as ask:
        found = await ask.replicas([name, unique("none")])
    assert sorted(found) == [TopicPartition(name, 0), TopicPartition(name, 1)]
    for each in found.values():
        assert each.replicas == each.in_sync == (each.leader,)


async def test_an_open_transaction_is_found_with_its_id_and_age(broker, unique):
    """Where it begins, whose it is, since when; none when it has ended, and unnamed when nobody knows it."""
    servers = broker.bootstrap_servers
    name = await topic(servers, unique("pinned"))
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


async def test_the_probe_leaves_nothing_but_markers(broker, unique):
    """No record, nothing held back, nothing open. What does not exist is refused, and the rest is probed all the
    same."""
    servers = broker.bootstrap_servers
    names = [await topic(servers, unique("probe")) for _ in range(2)]
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

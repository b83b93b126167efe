"""Tests of where a log ends, as all brokers see it."""

import asyncio
import uuid

import pytest
from aiokafka.cluster import ClusterMetadata

from snapreplay.service.kafka import cluster as module
from snapreplay.service.kafka.cluster import KafkaCluster, LeaderView
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.service.ports import NewTopic, TopicPartition
from tests.support import reference
from tests.support.kafka import hasty
from tests.support.stage import settings_for
from tests.support.three_brokers import three_brokers

pytestmark = pytest.mark.kafka


@pytest.fixture
async def log(broker, unique):
    """(settings, partition 0) of a topic with three records."""
    settings = settings_for(broker.bootstrap_servers)
    name = unique("agreed")
    await KafkaCluster(settings).create_topics([NewTopic(name, 1)])
    reference.send(broker.bootstrap_servers, name, 1, [("a", 1), ("b", 2), ("c", 3)])
    return settings, TopicPartition(name, 0)


async def end_offset(settings, partition):
    """Ask all brokers."""
    return await KafkaCluster(settings).agreed_end_offset(partition)


async def test_brokers_that_agree_know_the_end(log):
    """One broker is of one opinion."""
    assert await end_offset(*log) == 3


async def test_nobody_knows_the_end_of_what_is_not_there(log):
    """A topic, or a partition."""
    settings, partition = log
    assert await end_offset(settings, TopicPartition(partition.topic, 7)) is None
    assert await end_offset(settings, TopicPartition(partition.topic + "-not", 0)) is None


async def test_brokers_that_do_not_answer_know_nothing(closed_port):
    """No error: whoever asks goes on waiting."""
    settings = hasty(f"127.0.0.1:{closed_port}", 500)
    assert await end_offset(settings, TopicPartition("x", 0)) is None


async def test_a_broker_that_names_no_brokers_knows_nothing(log, monkeypatch):
    """One that the controllers have fenced answers so."""
    monkeypatch.setattr(ClusterMetadata, "brokers", lambda _: set())
    assert await end_offset(*log) is None


@pytest.mark.parametrize(
    "view", [LeaderView(1, frozenset({1, 2}), frozenset({1})), LeaderView(2, frozenset({1}), frozenset({1})), None]
)
async def test_a_replica_that_was_not_asked_may_know_better(log, monkeypatch, view):
    """Also a leader that is no broker of the cluster, and a broker that does not know the partition."""

    async def seen(*_):
        return view, set()

    monkeypatch.setattr(module, "leader_view", seen)
    assert await end_offset(*log) is None


async def answered(settings, partition, expected):
    for _ in range(600):
        if await end_offset(settings, partition) == expected:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"never {expected}")


@pytest.mark.slow
async def test_a_leader_that_is_cut_off_from_its_peers_is_not_believed():
    """It answers, and names another leader than the two others, until they are together again; a dead broker leaves
    the question open."""
    with three_brokers() as three:
        settings = settings_for(three.bootstrap_servers)
        name = f"agreed-{uuid.uuid4().hex[:8]}"
        await KafkaCluster(settings).create_topics([NewTopic(name, 1, 3)])
        partition = TopicPartition(name, 0)
        await answered(settings, partition, 0)
        async with KafkaDiagnostics(settings) as ask:
            leader = (await ask.replicas([name]))[partition].leader
        three.cut(leader - 1, "peers")
        await answered(settings, partition, None)
        for _ in range(5):
            assert await end_offset(settings, partition) is None
        three.heal()
        await answered(settings, partition, 0)
        three.kill(leader - 1)
        await answered(settings, partition, None)

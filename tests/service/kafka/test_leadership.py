"""Tests of where a log ends, as all brokers see it."""

import asyncio

import pytest
from aiokafka.cluster import ClusterMetadata

from snapreplay.service.kafka import cluster as module
from snapreplay.service.kafka.cluster import KafkaCluster, LeaderView
from snapreplay.service.ports import NewTopic, TopicPartition
from tests.support import reference
from tests.support.kafka import hasty
from tests.support.stage import settings_for

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


async def test_a_log_that_is_not_there_has_no_known_end(log):
    """A topic, or a partition."""
    settings, partition = log
    assert await end_offset(settings, TopicPartition(partition.topic, 7)) is None
    assert await end_offset(settings, TopicPartition(partition.topic + "-not", 0)) is None


async def test_brokers_that_do_not_answer_know_nothing(closed_port):
    """No error: the caller waits longer."""
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

"""Tests of how a producer's life ends: discarded, cancelled, unanswered, late, with its broker. Real brokers."""

import asyncio
import time

import pytest

from snapreplay.app.record import Output
from snapreplay.errors import StopError
from snapreplay.service.config.groups import TimeoutSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import CommitInDoubt, Unreachable
from snapreplay.service.kafka import producer as module
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import LogRecord
from tests.support.deadlines import scaled
from tests.support.kafka import Since, hasty, overtaken, values_of
from tests.support.owner import Hang
from tests.support.stage import until
from tests.support.wire import ADD_PARTITIONS, END_TXN, PRODUCE, Proxy, once


def output(topic, key=b"k", value=b"v", partition=None, same_key=False, timestamp_ms=None):
    return Output(topic, key, value, partition, same_key, timestamp_ms, (("h", b"1"),))


async def test_a_discarded_producer_is_dead_and_leaves_nothing(cluster, broker, new_topic, unique):
    """No task, no socket; a second discard is nothing; a commit is refused."""
    topic = await new_topic()
    since = Since(broker.bootstrap_servers)
    producer = await cluster.fence(unique("app"))
    await producer.commit(0, [], [LogRecord(topic, b"1")])
    await producer.discard()
    await producer.discard()
    assert not since.tasks
    await until(lambda: not since.sockets)
    with pytest.raises(CommitInDoubt, match="must be renewed"):
        await producer.commit(0, [], [LogRecord(topic, b"2")])


async def test_a_cancelled_commit_discards_the_producer(cluster, settings, new_topic, unique):
    """Whoever gives up on a commit cannot know how it ended, so the producer ends too."""
    topic, hang = await new_topic(), Hang()
    producer = await overtaken(cluster, settings, unique("app"), hang)
    commit = asyncio.create_task(producer.commit(0, [], [LogRecord(topic, b"1")]))
    await hang.called.wait()
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    assert producer.needs_renewal


async def test_sequence_numbers_never_reach_the_wrap(cluster, new_topic, unique, monkeypatch):
    """Past the limit the last commit still counts, and the next needs a new producer."""
    topic, producer = await new_topic(), await cluster.fence(unique("app"))
    monkeypatch.setattr(module, "SEQUENCE_RECORDS_MAX", 2)
    await producer.commit(0, [], [LogRecord(topic, b"1"), LogRecord(topic, b"2")])
    assert not producer.needs_renewal
    await producer.commit(0, [], [LogRecord(topic, b"3")])
    assert producer.needs_renewal
    await producer.discard()
    assert await values_of(cluster, topic) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(("api_key", "fate"), [(PRODUCE, "mute"), (ADD_PARTITIONS, "reset after"), (END_TXN, "mute")])
async def test_a_request_without_an_answer_ends_the_producers_life(broker, new_topic, unique, api_key, fate):
    """It is repeated; the commit may say OK, but the next one needs a new producer."""
    topic, name, proxy = await new_topic(), unique("app"), Proxy(broker.bootstrap_servers)
    settings = hasty(broker.bootstrap_servers, 1500)
    cluster = KafkaCluster(settings)
    async with proxy.through():
        producer = await cluster.fence(name)
        await producer.commit(0, [], [LogRecord(topic, b"1")])
        assert not producer.needs_renewal
        proxy.fault = once(api_key, fate)
        await producer.commit(0, [], [LogRecord(topic, b"2")])
        assert producer.needs_renewal
        with pytest.raises(CommitInDoubt):
            await producer.commit(0, [], [LogRecord(topic, b"never")])
        renewed = await cluster.fence(name)
        await renewed.commit(0, [], [LogRecord(topic, b"3")])
        assert not renewed.needs_renewal
        await renewed.discard()
    assert await values_of(cluster, topic) == [b"1", b"2", b"3"]


async def test_a_coordinator_that_never_answers_is_left_at_the_deadline(broker, new_topic, unique):
    """The outcome is in doubt, and nothing is left over."""
    topic, name, proxy = await new_topic(), unique("app"), Proxy(broker.bootstrap_servers)
    settings = hasty(broker.bootstrap_servers, 400, commit_ms=1500)
    since = Since(broker.bootstrap_servers)
    cluster = KafkaCluster(settings)
    async with proxy.through():
        producer = await cluster.fence(name)
        proxy.fault = lambda key: "mute" if key == END_TXN else "pass"
        started = time.monotonic()
        with pytest.raises(CommitInDoubt, match="deadline passed"):
            await producer.commit(0, [], [LogRecord(topic, b"1")])
        assert settings.timeouts.commit_ms / 1000 - 0.1 < time.monotonic() - started < scaled(15)
        assert not since.tasks
        proxy.fault = lambda key: "pass"
        renewed = await cluster.fence(name)
        await renewed.discard()
    assert await values_of(cluster, topic) == [b"1"]


async def test_a_fence_that_cannot_be_had_is_left_at_the_deadline(broker, unique):
    """The coordinator does not answer."""
    proxy = Proxy(broker.bootstrap_servers)
    settings = hasty(broker.bootstrap_servers, 400, fence_ms=1000)
    since = Since(broker.bootstrap_servers)
    async with proxy.through():
        proxy.fault = lambda key: "mute" if key == 22 else "pass"
        with pytest.raises(Unreachable, match="fencing"):
            await KafkaCluster(settings).fence(unique("app"))
    assert not since.tasks


async def test_a_transaction_timeout_above_the_brokers_is_a_setting_to_correct(broker, unique):
    """No retry would help, so it is a STOP with the setting's name."""
    settings = Settings(
        kafka={"bootstrap.servers": broker.bootstrap_servers}, timeouts=TimeoutSettings(transaction_ms=2_000_000)
    )
    with pytest.raises(StopError, match=r"timeouts\.transaction_ms"):
        await KafkaCluster(settings).fence(unique("app"))

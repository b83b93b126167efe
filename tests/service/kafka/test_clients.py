"""Tests that what was deleted stays away, on a broker that creates any topic that is asked for."""

import asyncio
import gc
import socket
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import CoordinationType
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import BrokerMetadata
from confluent_kafka.admin import AdminClient

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.connection import Connection, connect
from snapreplay.service.kafka.errors import Asked, translated
from snapreplay.service.kafka.refusals import NotConnected
from snapreplay.service.kafka.requests import DescribeTransactions
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.ports import LogRecord, NewTopic, TopicPartition
from tests.service.kafka.test_membership import Member
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.stage import until
from tests.support.steady import KEEPS_LEADERS
from tests.support.tampering import delete

CLIENTS, REFRESHES = 2, 2
DEAD = 77


@pytest.fixture(scope="module")
def creating():
    """Settings for a broker with Kafka's default."""
    with LocalBroker(properties={"auto.create.topics.enable": "true"} | KEEPS_LEADERS) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        yield Settings(kafka={**servers, "metadata.max.age.ms": 1000})


@pytest.mark.whole
@pytest.mark.kafka
async def test_a_deleted_topic_is_not_brought_back_by_its_clients(creating, unique, monkeypatch):
    """What reader, producer and admin client share, and the group member go on asking for it; each several times after
    it was deleted."""
    cluster, topic = KafkaCluster(creating), unique("deleted")
    servers = creating.kafka["bootstrap.servers"]
    await cluster.create_topics([NewTopic(topic, 1)])
    reader, producer = await cluster.reader(), await cluster.fence(unique("id"))
    await reader.follow({TopicPartition(topic, 0): 0})
    await producer.commit(0, [], [LogRecord(topic, b"there")])
    await until_async(lambda: reader.poll(1, 100), bool)
    member = Member(servers, unique("group"), topic, kafka={"metadata.max.age.ms": 1000})
    try:
        await until(lambda: member.owns)
        await asyncio.to_thread(delete, servers, topic)
        told: Counter[int] = Counter()
        update = ClusterMetadata.update_metadata

        def updated(self, answer):
            told.update([id(self)])
            return update(self, answer)

        monkeypatch.setattr(ClusterMetadata, "update_metadata", updated)

        async def refreshed():
            assert topic not in AdminClient({"bootstrap.servers": servers}).list_topics().topics
            assert topic not in await cluster.topics([topic])
            return sum(count >= REFRESHES for count in told.values())

        await until_async(refreshed, lambda clients: clients >= CLIENTS)
    finally:
        await member.membership.leave()
        await member.crash()
        await reader.close()
        await producer.discard()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other options")
async def test_the_kernel_ends_a_connection_whose_other_side_is_silent(broker):
    """When nothing was acknowledged for as long as a request may take, also while nothing is asked."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    connection = await connect(host, int(port), {"request_timeout_ms": 7000})
    try:
        transport: Any = connection._transport
        wire = transport.get_extra_info("socket")
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000
        assert 0 < wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 10
    finally:
        await connection.close()


async def test_a_question_for_any_broker_goes_to_one_that_is_there(broker, closed_port, monkeypatch):
    """Although the cluster lists another one, as it does for some seconds after a broker has died."""
    client = Client(Shared(Settings(kafka={"bootstrap.servers": broker.bootstrap_servers})))
    await client.start()
    dead = BrokerMetadata(DEAD, "127.0.0.1", closed_port, None)
    there = client.cluster.brokers()
    monkeypatch.setattr(ClusterMetadata, "brokers", lambda _: {*there, dead})
    known = ClusterMetadata.broker_metadata
    monkeypatch.setattr(
        ClusterMetadata, "broker_metadata", lambda self, node: dead if node == DEAD else known(self, node)
    )
    try:
        for _ in range(20):  # whom it asks is chance
            node, answer = await client.ask_any(MetadataRequest([]))
            assert (node, len(answer.brokers)) != (DEAD, 1)
            assert await client.anybody() != DEAD
    finally:
        await client.close()


async def test_a_quota_that_is_reported_too_late_moves_no_deadline():
    """The answer to a request that had waited for too long is the one of a request as any other."""
    client = Client(Shared(Settings()))

    async def answered_late():
        try:
            await asyncio.Event().wait()
        finally:
            client._throttled(Connection("h", 1, "", 1.0), ProduceRequest, 1.0)

    with pytest.raises(TimeoutError):
        async with client.writing(0.001):
            await answered_late()
    async with client.writing(60):  # which begins when the wait is over
        pass


@pytest.mark.parametrize("steps", range(0, 14, 3))
async def test_a_connection_that_is_cancelled_leaves_no_socket(steps):
    """Wherever the cancel meets it. A socket that is not closed is a warning, and fails the test."""

    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        making = connect(host, port, {"request_timeout_ms": 10_000})
        before = asyncio.all_tasks()
        connecting = asyncio.create_task(making)
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        for task in asyncio.all_tasks() - before:
            await asyncio.wait([task], timeout=scaled(10))
        gc.collect()


AWAY, REFUSED = 16, 30


@pytest.mark.parametrize(
    ("known", "answers", "asked", "found"),
    [
        (None, [0], [1], 0),
        (7, [0], [7], 0),
        (7, [AWAY, 0], [7, 1], 0),
        (7, [NotConnected("gone"), 0], [7, 1], 0),
        (None, [AWAY, 0], [1, 1], 0),
        (None, [REFUSED], [1], REFUSED),
        (None, [NotConnected("gone")], [1], NotConnected),
        (7, [NotConnected("gone"), NotConnected("gone")], [7, 1], NotConnected),
    ],
)
async def test_a_coordinator_is_looked_for_once_until_it_is_another_one(known, answers, asked, found, monkeypatch):
    """Also when the known one is gone; a new one that does not answer is the caller's business."""
    shared = Shared(Settings())
    client, seen, left = Client(shared), [], list(answers)

    async def coordinator(name: str, kind: int) -> int:
        return 1

    async def send(node: int, _: object) -> SimpleNamespace:
        seen.append(node)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(error_code=answer)

    monkeypatch.setattr(client, "coordinator", coordinator)
    monkeypatch.setattr(client, "send", send)
    key = CoordinationType.GROUP, "group"
    if known is not None:
        shared.coordinators[key] = known
    asking = client.ask_coordinator("group", HeartbeatRequest("group", -1, ""))
    if found is NotConnected:
        with pytest.raises(NotConnected):
            await asking
        assert key not in shared.coordinators
    else:
        assert (await asking).error_code == found
    assert seen == asked


@pytest.mark.parametrize("known", [None, 7])
async def test_a_deadline_of_repeated_questions_names_the_last_trouble(known, monkeypatch):
    """Not only that time was up. A state may carry the code, too."""
    shared = Shared(Settings())
    client = Client(shared)

    async def coordinator(name: str, kind: int) -> int:
        return 1

    async def send(*_: object) -> SimpleNamespace:
        return SimpleNamespace(transaction_states=[(AWAY, "id", "", 0, 0, 0, 0, [])])

    monkeypatch.setattr(client, "coordinator", coordinator)
    monkeypatch.setattr(client, "send", send)
    if known is not None:
        shared.coordinators[CoordinationType.TRANSACTION, "id"] = known
    with pytest.raises(Unreachable, match=r"while describing it: .*; before it: .*NotCoordinator.* of id"):
        async with translated("describing it", Asked(Settings(), "Describe"), within_s=0.2):
            await client.ask_coordinator("id", DescribeTransactions("id"), CoordinationType.TRANSACTION)

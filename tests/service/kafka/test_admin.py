"""Topics, facts and trimming on a real broker; every response code is looked at."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.group import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, Unreachable
from snapreplay.service.kafka import admin
from snapreplay.service.kafka.admin import TOPIC_CONFIG, GroupMember, KafkaAdmin
from snapreplay.service.kafka.connection import AnyRequest
from snapreplay.service.kafka.requests import ConsumerGroupDescribe, Metadata, PartitionLed, struct_of
from snapreplay.service.kafka.shared import Client
from snapreplay.service.ports import LogRecord, NewTopic, TopicPartition
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.steady import KEEPS_LEADERS

pytestmark = pytest.mark.kafka

MEMBER_ID_REQUIRED = 79


async def test_topic_facts_are_those_of_the_cluster(cluster, new_topic, unique):
    """Partitions, copies and the seven configs as strings; a missing topic is absent, not created."""
    topic, missing = await new_topic(3, max_message_bytes="2000000"), unique("missing")
    facts = await cluster.topics([topic, missing])
    assert list(facts) == [topic]
    assert (facts[topic].partition_count, facts[topic].replication_factor) == (3, 1)
    assert set(facts[topic].config) == set(TOPIC_CONFIG)
    assert facts[topic].config["max.message.bytes"] == "2000000"
    assert facts[topic].config["cleanup.policy"] == "delete"
    names = await cluster.topic_names()
    assert topic in names
    assert missing not in names
    assert names == sorted(names)
    assert await cluster.topics([]) == {}


async def test_brokers_that_are_too_old_are_refused_by_their_name(cluster, new_topic, monkeypatch):
    """The client only says that it has no code for it."""
    topic = await new_topic(1)
    future = struct_of("Metadata", Metadata.API_KEY, 99, Metadata.ASKED, Metadata.ANSWERED)
    monkeypatch.setattr(Metadata, "STRUCTS", (future,))
    with pytest.raises(StopError, match="the version of a request") as refused:
        await cluster.topics([topic])
    assert "Kafka 3.0" in refused.value.hint


async def test_a_topic_is_missing_only_if_no_broker_knows_it(cluster, new_topic, unique, monkeypatch):
    """The broker that is asked first may be behind the controllers: here it names nothing."""
    ask = Client.ask_any

    async def behind(self: Client, request: AnyRequest) -> tuple[int, Any]:
        _, answer = await ask(self, request)
        answer.topics = []
        return 77, answer

    topic, missing = await new_topic(3), unique("missing")
    monkeypatch.setattr(Client, "ask_any", behind)
    facts = await cluster.topics([topic, missing])
    assert list(facts) == [topic]
    assert facts[topic].partition_count == 3


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda name: NewTopic(name, 1, replication_factor=3), "eplication factor"),
        (lambda name: NewTopic(name, 1, config={"no.such.config": "1"}), "no.such.config"),
        (lambda name: NewTopic(name, 0), "artitions"),
        (lambda name: NewTopic("a b", 1), "illegal|invalid"),
    ],
)
async def test_a_topic_that_cannot_be_created_is_named_with_the_brokers_reason(cluster, unique, make, reason):
    """The client itself raises nothing at all."""
    topic = make(unique("t"))
    with pytest.raises(StopError, match=reason) as caught:
        await cluster.create_topics([topic])
    assert topic.name in caught.value.message


async def test_a_new_topic_can_be_written_at_once(cluster, unique):
    """create_topics waits until every partition has a leader."""
    topic = unique("t")
    await cluster.create_topics([])
    await cluster.create_topics([NewTopic(topic, 20)])
    producer = await cluster.fence(unique("app"))
    assert await producer.commit(19, [], [LogRecord(topic, b"x")]) == (0,)


async def test_trimming_moves_the_start_and_never_back(cluster, new_topic, unique):
    """The new start is answered; below it nothing happens; above the end is refused."""
    topic, producer = await new_topic(), await cluster.fence(unique("app"))
    await producer.commit(0, [], [LogRecord(topic, b"x")] * 5)
    source = TopicPartition(topic, 0)
    assert await cluster.delete_records(source, 3) == 3
    assert await cluster.delete_records(source, 1) == 3
    with pytest.raises(OffsetBeyondEnd):
        await cluster.delete_records(source, 100)
    with pytest.raises(ValueError, match="explicit offset"):
        await cluster.delete_records(source, -1)


async def test_a_controller_that_is_named_a_moment_later_is_waited_for(cluster, unique, monkeypatch):
    """As of a broker that was too busy to say that it is alive."""
    topic, update, looks = NewTopic(unique("t"), 1), ClusterMetadata.update_metadata, itertools.count()

    def late_controller(self: ClusterMetadata, answer: object) -> None:
        update(self, answer)
        if next(looks) < 4:
            self.controller = None

    monkeypatch.setattr(ClusterMetadata, "update_metadata", late_controller)
    await cluster.create_topics([topic])
    assert list(await cluster.topics([topic.name])) == [topic.name]


async def test_without_a_controller_a_topic_is_created_later(cluster, unique, monkeypatch):
    """While brokers start, the broker that is asked may name none; a broker that is known to exist need not answer."""
    topic, update = NewTopic(unique("t"), 1), ClusterMetadata.update_metadata

    def without_controller(self: ClusterMetadata, answer: object) -> None:
        update(self, answer)
        self.controller = None

    with monkeypatch.context() as starting:
        starting.setattr(ClusterMetadata, "update_metadata", without_controller)
        with pytest.raises(Unreachable, match="no controller is known"):
            await cluster.create_topics([topic])
    await cluster.create_topics([topic])
    assert list(await cluster.topics([topic.name])) == [topic.name]


@pytest.mark.parametrize(
    ("leaders", "led"), [([1, 2], True), ([], False), ([1], False), ([1, -1], False), ([0, 0], True)]
)
def test_a_topic_is_ready_when_all_its_partitions_are_led(leaders, led):
    """Brokers learn of a new topic one after another: some partitions missing, or without a leader."""
    partitions = [PartitionLed(0, index, leader, 0, 1) for index, leader in enumerate(leaders)]
    assert admin.all_led(admin.TopicSeen("", partitions, -1), 2) is led


async def members(admin: KafkaAdmin, group_id: str) -> list[GroupMember]:
    """Ask until the group has a coordinator: a broker that has just started has none yet."""

    async def asked() -> list[GroupMember] | None:
        try:
            return await admin.group_members(group_id)
        except Unreachable:
            return None

    found = await until_async(asked, lambda found: found is not None)
    assert found is not None
    return found


@asynccontextmanager
async def member(admin: KafkaAdmin, group_id: str, kind: str, protocol: str) -> AsyncIterator[None]:
    """The only member of a stable group. What it joins with and is assigned are no bytes of Kafka's consumer protocol:
    they give a length that goes far beyond them."""
    assert await members(admin, group_id) == []
    foreign = b"\x00\x01\x7f\xff\xff\xff{}"
    async with admin.client("joining") as client:
        node = await client.coordinator(group_id)
        send, joining = client.send, (kind, [(protocol, foreign)])
        joined = await send(node, JoinGroupRequest(group_id, 30_000, 30_000, "", None, *joining))
        member_id = joined.member_id
        if joined.error_code == MEMBER_ID_REQUIRED:
            joined = await send(node, JoinGroupRequest(group_id, 30_000, 30_000, member_id, None, *joining))
        assert joined.error_code == 0
        sync = SyncGroupRequest(group_id, joined.generation_id, member_id, None, [(member_id, foreign)])
        assert (await send(node, sync)).error_code == 0
        yield
        await send(node, LeaveGroupRequest(group_id, member_id))


async def test_a_member_of_another_protocol_is_foreign(settings, cluster, unique):
    """Only the name of its protocol is read: its bytes have a format of their own."""
    group_id = unique("g")
    async with member(KafkaAdmin(settings), group_id, "connect", "sessioned"):
        (found,) = await cluster.foreign_members(group_id)
        assert found.protocol == "connect"
        assert await cluster.group_members(group_id) == []


@pytest.mark.parametrize("code", [15, 16, 30], ids=["no coordinator", "moved", "forbidden"])
async def test_an_error_about_the_newer_members_is_not_taken_for_none(cluster, unique, monkeypatch, code):
    """The group may have members that were not seen."""
    send = Client.send

    async def failing(client, node, request, **how):
        answer = await send(client, node, request, **how)
        if isinstance(request, ConsumerGroupDescribe):
            answer.groups = [(code, *answer.groups[0][1:])]
        return answer

    monkeypatch.setattr(Client, "send", failing)
    with pytest.raises(SnapreplayError):
        await cluster.group_members(unique("g"))


@pytest.mark.whole
async def test_a_broker_without_the_newer_protocol_has_no_such_members(unique):
    """Such a broker knows the request, and refuses it for every group."""
    off = {**KEEPS_LEADERS, "group.coordinator.rebalance.protocols": "classic"}
    with LocalBroker(properties=off, deadline_s=scaled(60)) as broker:
        admin = KafkaAdmin(Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}))
        assert await members(admin, unique("g")) == []

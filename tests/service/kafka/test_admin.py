"""Topics, facts and trimming on a real broker; every response code is looked at."""

import itertools

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.cluster import ClusterMetadata

from snapreplay.errors import StopError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, Unreachable
from snapreplay.service.kafka import admin
from snapreplay.service.kafka.admin import TOPIC_CONFIG, KafkaAdmin
from snapreplay.service.kafka.requests import TopicIds, struct_of
from snapreplay.service.ports import LogRecord, NewTopic, TopicPartition

pytestmark = pytest.mark.kafka


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
    future = struct_of("TopicIds", TopicIds.API_KEY, 99, TopicIds.ASKED, TopicIds.ANSWERED)
    monkeypatch.setattr(TopicIds, "_CLASSES", (future,))
    with pytest.raises(StopError, match="our version of a request") as refused:
        await cluster.topics([topic])
    assert "Kafka 3.0" in refused.value.hint


async def test_a_topic_is_missing_only_if_no_broker_knows_it(cluster, new_topic, unique, monkeypatch):
    """The one that is asked first may be behind the controllers: here its listing names nothing."""

    async def behind(*_: object) -> list[object]:
        return []

    topic, missing = await new_topic(3), unique("missing")
    monkeypatch.setattr(AIOKafkaAdminClient, "describe_topics", behind)
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
    await producer.discard()


async def test_trimming_moves_the_start_and_never_back(cluster, new_topic, unique):
    """The new start is answered; below it nothing happens; above the end is refused."""
    topic, producer = await new_topic(), await cluster.fence(unique("app"))
    await producer.commit(0, [], [LogRecord(topic, b"x")] * 5)
    await producer.discard()
    source = TopicPartition(topic, 0)
    assert await cluster.delete_records(source, 3) == 3
    assert await cluster.delete_records(source, 1) == 3
    with pytest.raises(OffsetBeyondEnd):
        await cluster.delete_records(source, 100)
    with pytest.raises(ValueError, match="explicit offset"):
        await cluster.delete_records(source, -1)


async def test_nobody_there_is_unreachable_for_every_question():
    """No client exception passes the border."""
    nobody = KafkaAdmin(Settings(kafka={"bootstrap.servers": "127.0.0.1:9"}))
    for question in (
        nobody.facts(),
        nobody.topic_names(),
        nobody.topics(["t"]),
        nobody.create_topics([NewTopic("t", 1)]),
        nobody.delete_records(TopicPartition("t", 0), 1),
        nobody.group_members("g"),
    ):
        with pytest.raises(Unreachable):
            await question


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
    """While brokers start, the one that is asked may name none; a broker that is known to exist need not answer."""
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
    assert admin.all_led(leaders, 2) is led

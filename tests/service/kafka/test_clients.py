"""What was deleted stays away, on a broker that creates whatever is asked for."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from snapreplay.service import kafka
from snapreplay.service.kafka.clients import consumer_client
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.config import membership_arguments
from snapreplay.service.localbroker.broker import LocalBroker
from snapreplay.service.ports import LogRecord, NewTopic, TopicPartition
from snapreplay.service.settings import Settings
from tests.support.kafka import until_async
from tests.support.tampering import delete

FOLDER = Path(kafka.__file__).parent
REFRESHES = 3


@pytest.fixture(scope="module")
def creating():
    """Settings for a broker with Kafka's default."""
    with LocalBroker(properties={"auto.create.topics.enable": "true"}) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        yield Settings(kafka={**servers, "metadata.max.age.ms": 1000})


@pytest.mark.kafka
async def test_a_deleted_topic_is_not_brought_back_by_its_clients(creating, unique):
    """Reader, producer, admin client and group member go on asking for it; each several times after it was deleted."""
    cluster, topic = KafkaCluster(creating), unique("deleted")
    servers = creating.kafka["bootstrap.servers"]
    await cluster.create_topics([NewTopic(topic, 1)])
    reader, producer = await cluster.reader(), await cluster.fence(unique("id"))
    await reader.follow({TopicPartition(topic, 0): 0})
    await producer.commit(0, [], [LogRecord(topic, b"there")])
    await until_async(lambda: reader.poll(1, 100), bool)
    member = consumer_client(membership_arguments(creating, unique("group")))
    await member.start()
    member.subscribe([topic])
    try:
        await until_async(member.getmany, lambda _: bool(member.assignment()))
        await asyncio.to_thread(delete, servers, topic)
        told: Counter[int] = Counter()
        assert reader._consumer is not None
        clients = (reader._consumer._client, producer._producer.client, member._client)
        for place, client in enumerate(clients):
            client.cluster.add_listener(lambda _, place=place: told.update([place]))

        async def refreshed():
            assert topic not in AdminClient({"bootstrap.servers": servers}).list_topics().topics
            assert topic not in await cluster.topics([topic])
            return [told[place] for place in range(len(clients))]

        await until_async(refreshed, lambda counts: min(counts) >= REFRESHES)
    finally:
        await member.stop()
        await reader.close()
        await producer.discard()


def test_nobody_else_makes_clients():
    """One that is made elsewhere would bring deleted topics back."""
    made = re.compile(r"AIOKafka(Client|Consumer|Producer|AdminClient)\(")
    elsewhere = [path.name for path in FOLDER.glob("*.py") if made.search(path.read_text())]
    assert elsewhere == ["clients.py"]

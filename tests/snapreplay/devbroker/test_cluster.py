"""Three real brokers."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.protocol.metadata import MetadataRequest

from snapreplay.devbroker.cluster import LocalCluster
from snapreplay.devbroker.ports import free_ports
from snapreplay.devbroker.properties import Node
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.ports import NewTopic as TopicToCreate

pytestmark = pytest.mark.kafka
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three brokers for this file."""
    with LocalCluster(3) as three:
        yield three


async def make_topic(cluster: LocalCluster, topic: str) -> int:
    """Make a topic with three copies; returns the number of the broker that leads it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(topic, 1, 3)])
        assert [code for _topic, code, *_ in answer.topic_errors] == [0]
        async with asyncio.timeout(DEADLINE_S):
            while True:
                described = (await admin.describe_topics([topic]))[0]["partitions"]
                if described and described[0]["leader"] > 0:
                    return int(described[0]["leader"]) - 1
                await asyncio.sleep(0.02)
    finally:
        await admin.close()


async def count(cluster: LocalCluster, topic: str) -> int:
    """The end offset of the topic's only partition."""
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        return int((await consumer.end_offsets([partition]))[partition])
    finally:
        await consumer.stop()


async def test_a_topic_that_was_created_is_known_to_every_broker(
    cluster: LocalCluster, unique: Callable[[str], str]
) -> None:
    """Brokers learn of it one after another; whoever asks after `create_topics` may ask the last of them."""
    settings = Settings(kafka={"bootstrap.servers": cluster.bootstrap_servers})
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        nodes = [broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]]
        for _ in range(10):
            topic = unique("known")
            await KafkaAdmin(settings).create_topics([TopicToCreate(topic, 3)])
            for node in nodes:
                answer = await admin._send_request_to_node(node, MetadataRequest([topic]))
                (entry,) = answer.to_object()["topics"]
                assert (entry["error_code"], len(entry["partitions"])) == (0, 3), f"node {node}"
    finally:
        await admin.close()


async def test_it_goes_on_without_one_of_its_brokers(
    cluster: LocalCluster, unique: Callable[[str], str]
) -> None:
    """With a topic's leader killed, writing goes on, and nothing acknowledged is lost."""
    topic = unique("copies")
    leader = await make_topic(cluster, topic)
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"before")
        cluster.node(leader).kill()
        await producer.send_and_wait(topic, b"without")
        cluster.restart_node(leader)
        await producer.send_and_wait(topic, b"after")
    finally:
        await producer.stop()
    assert await count(cluster, topic) == 3


def test_its_addresses_are_three(cluster: LocalCluster) -> None:
    """A client that knows all can lose any."""
    addresses = cluster.bootstrap_servers.split(",")
    assert len(set(addresses)) == 3
    assert addresses[2] == cluster.node(2).bootstrap_server
    assert len({cluster.node(number).pid for number in range(3)}) == 3


def test_a_broker_starts_where_and_how_it_is_told() -> None:
    """Its address is the given one, and its command has passed through what stands before it."""
    port, controller_port = free_ports(2)
    node = Node(1, port, controller_port, enter=("env", "ENTERED=yes"))
    with LocalCluster(1, nodes=[node]) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"
        environment = Path(f"/proc/{cluster.node(0).pid}/environ").read_bytes()
        assert b"ENTERED=yes" in environment.split(b"\0")


def test_a_second_start_is_refused(cluster: LocalCluster) -> None:
    """One object is one cluster."""
    with pytest.raises(RuntimeError, match="already started"):
        cluster.start()


def test_what_is_not_started_has_no_address() -> None:
    """Asking too early is an error of the program; stopping too early is none."""
    cluster = LocalCluster(3)
    cluster.stop()
    with pytest.raises(RuntimeError, match="not started"):
        _ = cluster.bootstrap_servers

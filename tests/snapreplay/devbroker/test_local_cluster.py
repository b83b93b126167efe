"""Three real brokers."""

from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.metadata import MetadataRequest
from confluent_kafka.admin import AdminClient

from snapreplay.devbroker.broker import LocalCluster
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.properties import Node
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.ports import NewTopic
from tests.support.tampering import end_offset

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three brokers for this file."""
    three = LocalCluster(3, properties={"broker.session.timeout.ms": "5000"})  # of one that stands still for a moment
    with pytest.raises(RuntimeError, match="not started"):
        _ = three.bootstrap_servers
    with three:
        yield three


@pytest.fixture
def admin(cluster: LocalCluster) -> KafkaAdmin:
    return KafkaAdmin(Settings(kafka={"bootstrap.servers": cluster.bootstrap_servers}))


@pytest.mark.whole
async def test_a_topic_that_was_created_is_known_to_every_broker(
    cluster: LocalCluster, admin: KafkaAdmin, unique: Callable[[str], str]
) -> None:
    """Brokers learn of it one after another; whoever asks after `create_topics` may ask the last of them."""
    client = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.start()
    try:
        nodes = [broker["node_id"] for broker in (await client.describe_cluster())["brokers"]]
        assert len(nodes) == len(set(cluster.bootstrap_servers.split(","))) == 3
        for _ in range(10):
            topic = unique("known")
            await admin.create_topics([NewTopic(topic, 3)])
            for node in nodes:
                answer = await client._send_request_to_node(node, MetadataRequest([topic]))
                (entry,) = answer.to_object()["topics"]
                assert (entry["error_code"], len(entry["partitions"])) == (0, 3), f"node {node}"
    finally:
        await client.close()


@pytest.mark.whole
async def test_it_goes_on_without_one_of_its_brokers(
    cluster: LocalCluster, admin: KafkaAdmin, unique: Callable[[str], str]
) -> None:
    """With a topic's leader killed, writing goes on, and nothing acknowledged is lost. One object is one cluster."""
    with pytest.raises(RuntimeError, match="already started"):
        cluster.start()
    topic = unique("copies")
    await admin.create_topics([NewTopic(topic, 1)])
    known = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic)
    leader = known.topics[topic].partitions[0].leader - 1
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
    assert end_offset(cluster.bootstrap_servers, topic) == 3


@pytest.mark.whole
def test_a_broker_starts_where_it_is_told() -> None:
    """At the given ports."""
    port, controller_port = free_ports(2)
    with LocalCluster(1, nodes=[Node(1, port, controller_port)]) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"

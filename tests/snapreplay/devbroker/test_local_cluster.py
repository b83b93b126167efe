"""Three real brokers."""

from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient

from snapreplay.devbroker.broker import LocalCluster
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

"""Our own requests on the wire: a real broker understands them, and we understand it."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from snapreplay.service.kafka.requests import TopicIds
from tests.support.tampering import topic_id


@pytest.mark.kafka
@pytest.mark.parametrize("newest", [11, 12])
async def test_topic_ids_are_asked_for_in_both_versions(broker, new_topic, newest):
    """11 for a broker before Kafka 3.1."""
    name = await new_topic(1)
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await client.start()
    try:
        node = client._client.get_random_node()
        connection = await client._client._get_conn(node)
        connection._versions[3] = (0, newest)
        answer = await client._client.send(node, TopicIds([name]))
        ((code, named, found, *_),) = answer.topics
        expected = (newest, 0, name, topic_id(broker.bootstrap_servers, name))
        assert (answer.API_VERSION, code, named, found) == expected
    finally:
        await client.close()

"""Our own requests on the wire: a real broker understands them, and we understand it."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.api import RequestHeader_v2

from snapreplay.service.kafka.requests import (
    DescribeProducers,
    DescribeTransactions,
    ListTransactions,
    TopicIds,
)
from tests.support.tampering import topic_id

VERSIONS = {3: (0, 13), 61: (0, 0), 65: (0, 0), 66: (0, 2)}
REQUESTS = [
    *(DescribeProducers("t", 3), DescribeTransactions("id"), ListTransactions([7])),
    TopicIds(["t"]),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_requests_are_flexible_and_read_back(request_):
    """The broker decides by number and version; what is encoded decodes to the same."""
    struct = request_.prepare(VERSIONS)
    assert isinstance(struct.build_request_header(1, "c"), RequestHeader_v2)
    assert type(struct).decode(struct.encode()) == struct


@pytest.mark.kafka
async def test_what_does_not_exist_is_answered_with_a_code(broker, unique):
    """Unknown partition, unknown transactional id; no transactions of an unknown producer."""
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await client.start()
    try:
        node = client._client.get_random_node()
        answer = await client._client.send(node, DescribeProducers(unique("no"), 0))
        assert answer.topics[0][1][0][1] == 3
        answer = await client._client.send(node, DescribeTransactions(unique("no")))
        assert answer.transaction_states[0][0] == 105
        answer = await client._client.send(node, ListTransactions([10**12]))
        assert (answer.error_code, answer.transaction_states) == (0, [])
    finally:
        await client.close()


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

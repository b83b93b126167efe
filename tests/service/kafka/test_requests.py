"""Our own requests, byte by byte and on the wire. What a real coordinator answers to those of members:
test_membership.py."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from snapreplay.service.kafka.requests import DescribeGroup, LeaveGroup, TopicIds
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


def test_describe_group_is_version_4_of_the_protocol_guide():
    """An array of group ids with a 2-byte length each, then whether to say what we may do: no."""
    request = DescribeGroup("g").prepare({15: (0, 6)})
    assert request.encode() == b"\0\0\0\1" + b"\0\1g" + b"\0"


def test_leave_group_is_version_3_of_the_protocol_guide():
    """group_id, then an array of (member_id, group_instance_id), each string with a 2-byte length."""
    request = LeaveGroup("g", "m1", "i").prepare({13: (0, 5)})
    assert request.encode() == b"\0\1g" + b"\0\0\0\1" + b"\0\2m1" + b"\0\1i"


def test_a_dynamic_member_leaves_without_an_instance_id():
    """Null: a length of -1."""
    request = LeaveGroup("g", "m1", None).prepare({13: (0, 5)})
    assert request.encode().endswith(b"\0\2m1" + b"\xff\xff")

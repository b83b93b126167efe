"""LeaveGroup version 3, byte by byte and towards a real coordinator."""

import pytest
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import GroupCoordinatorNotAvailableError

from snapreplay.service.kafka.leave import LeaveGroup, LeaveGroupRequestV3
from tests.support.kafka import until_async

UNKNOWN_MEMBER_ID = 25
COORDINATOR_NOT_AVAILABLE = 15
NOT_YET = {14, COORDINATOR_NOT_AVAILABLE, 16}  # the first group of a new broker


def test_the_request_is_that_of_the_protocol_guide():
    """group_id, then an array of (member_id, group_instance_id), each string with a 2-byte length."""
    request = LeaveGroup("g", "m1", "i").prepare({13: (0, 5)})
    assert isinstance(request, LeaveGroupRequestV3)
    assert request.encode() == b"\0\1g" + b"\0\0\0\1" + b"\0\2m1" + b"\0\1i"


def test_a_dynamic_member_has_no_instance_id():
    """Null: a length of -1."""
    request = LeaveGroup("g", "m1", None).prepare({13: (0, 5)})
    assert request.encode().endswith(b"\0\2m1" + b"\xff\xff")


@pytest.mark.kafka
async def test_the_coordinator_understands_it(broker, unique):
    """A member nobody knows is answered with its own code, so the format is right on both ways."""
    client, group = AIOKafkaClient(bootstrap_servers=broker.bootstrap_servers), unique("group")
    await client.bootstrap()

    async def codes():
        try:
            node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        except GroupCoordinatorNotAvailableError:
            return {COORDINATOR_NOT_AVAILABLE}
        request = LeaveGroup(group, "nobody", "instance")
        answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
        return {answer.error_code, *(code for _, _, code in answer.members)}

    try:
        answered = await until_async(codes, lambda found: not found & NOT_YET)
    finally:
        await client.close()
    assert UNKNOWN_MEMBER_ID in answered

"""LeaveGroup version 3, byte by byte and towards a real coordinator."""

from snapreplay.service.kafka.leave import LeaveGroup, LeaveGroupRequestV3


def test_the_request_is_that_of_the_protocol_guide():
    """group_id, then an array of (member_id, group_instance_id), each string with a 2-byte length."""
    request = LeaveGroup("g", "m1", "i").prepare({13: (0, 5)})
    assert isinstance(request, LeaveGroupRequestV3)
    assert request.encode() == b"\0\1g" + b"\0\0\0\1" + b"\0\2m1" + b"\0\1i"


def test_a_dynamic_member_has_no_instance_id():
    """Null: a length of -1."""
    request = LeaveGroup("g", "m1", None).prepare({13: (0, 5)})
    assert request.encode().endswith(b"\0\2m1" + b"\xff\xff")

"""DescribeGroups version 4, byte by byte; what a real coordinator answers to it: test_membership.py."""

from snapreplay.service.kafka.describe_group import DescribeGroup, DescribeGroupsRequestV4


def test_the_request_is_that_of_the_protocol_guide():
    """An array of group ids with a 2-byte length each, then whether to say what we may do: no."""
    request = DescribeGroup("g").prepare({15: (0, 6)})
    assert isinstance(request, DescribeGroupsRequestV4)
    assert request.encode() == b"\0\0\0\1" + b"\0\1g" + b"\0"

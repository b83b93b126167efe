"""DescribeGroups with the instance ids of static members: version 4 (Kafka 2.4), while aiokafka 0.14.0 ends at 3."""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String

_TEXT = String("utf-8")


class DescribeGroupsResponseV4(Response):
    """The members of each group; `group_instance_id` is None for a dynamic one."""

    API_KEY = 15
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", _TEXT),
                ("state", _TEXT),
                ("protocol_type", _TEXT),
                ("protocol", _TEXT),
                (
                    "members",
                    Array(
                        ("member_id", _TEXT),
                        ("group_instance_id", _TEXT),
                        ("client_id", _TEXT),
                        ("client_host", _TEXT),
                        ("member_metadata", Bytes),
                        ("member_assignment", Bytes),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    )


class DescribeGroupsRequestV4(RequestStruct):
    """The groups, and whether to say what we may do with them."""

    API_KEY = 15
    API_VERSION = 4
    RESPONSE_TYPE = DescribeGroupsResponseV4
    SCHEMA = Schema(("groups", Array(_TEXT)), ("include_authorized_operations", Boolean))


class DescribeGroup(Request[DescribeGroupsRequestV4]):
    """One group, to be sent to its coordinator."""

    API_KEY = 15

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def build(self, request_struct_class: type[DescribeGroupsRequestV4]) -> DescribeGroupsRequestV4:
        return request_struct_class([self._group_id], False)

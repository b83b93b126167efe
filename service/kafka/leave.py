"""LeaveGroup, also for a static member. aiokafka 0.14.0 does not send it then, so after a planned stop the others would
wait a whole session timeout for the partitions (KIP-345 adds the instance id in version 3).
"""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String

_TEXT = String("utf-8")


class LeaveGroupResponseV3(Response):
    """Codes of the request and of each member; 0 = left."""

    API_KEY = 13
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "members",
            Array(("member_id", _TEXT), ("group_instance_id", _TEXT), ("error_code", Int16)),
        ),
    )


class LeaveGroupRequestV3(RequestStruct):
    """A static member must give its instance id along with its member id, a dynamic one gives None."""

    API_KEY = 13
    API_VERSION = 3
    RESPONSE_TYPE = LeaveGroupResponseV3
    SCHEMA = Schema(
        ("group_id", _TEXT),
        ("members", Array(("member_id", _TEXT), ("group_instance_id", _TEXT))),
    )


class LeaveGroup(Request[LeaveGroupRequestV3]):
    """A request to leave with the member id, so that a newer process of the same instance id is not thrown out."""

    API_KEY = 13

    def __init__(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        self._group_id = group_id
        self._members = [(member_id, instance_id)]

    def build(self, request_struct_class: type[LeaveGroupRequestV3]) -> LeaveGroupRequestV3:
        return request_struct_class(self._group_id, self._members)

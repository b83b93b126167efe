"""The parts that every request of our own is made of: fields of flexible versions (KIP-482) and topic ids (KIP-516),
which aiokafka 0.14.0 does not have."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from io import BytesIO
from typing import Any, ClassVar

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import AbstractType, CompactArray, CompactString, Schema, TaggedFields

TEXT = CompactString("utf-8")
NO_TAGS: dict[int, bytes] = {}
"""The value of the last field of every flexible structure, in a request."""

_END = ("tags", TaggedFields)
_NO_TOPIC_ID = bytes(16)


class TopicId(AbstractType[str]):
    """Sixteen bytes, as the text that Kafka's tools print; the zero id, which means none, as ""."""

    @classmethod
    def encode(cls, value: str) -> bytes:
        return urlsafe_b64decode(value + "==") if value else _NO_TOPIC_ID

    @classmethod
    def decode(cls, data: BytesIO) -> str:
        raw = data.read(16)
        return urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else ""


def flexible(**fields: Any) -> Schema:
    """Return the schema of a flexible structure with these fields, in this order."""
    return Schema(*fields.items(), _END)


def array_of(**fields: Any) -> CompactArray:
    """Return an array of flexible structures with these fields, in this order."""
    return CompactArray(*fields.items(), _END)


def struct_of(
    name: str, key: int, version: int, asked: Schema, answered: Schema, *, is_flexible: bool = True
) -> type[RequestStruct]:
    """Make the struct of one version of a request, with the struct of its answer."""
    numbers = {"API_KEY": key, "API_VERSION": version}
    answer = type(f"{name}Response_v{version}", (Response,), numbers | {"SCHEMA": answered})
    more = {"SCHEMA": asked, "RESPONSE_TYPE": answer, "FLEXIBLE_VERSION": is_flexible}
    return type(f"{name}Request_v{version}", (RequestStruct,), numbers | more)


class OwnRequest(Request[RequestStruct]):
    """A request in the versions that we know, the newest last. All of them have the same fields."""

    API_KEY = -1
    VERSIONS: ClassVar[tuple[int, ...]] = ()
    FLEXIBLE: ClassVar[bool] = True
    ASKED: ClassVar[Schema]
    ANSWERED: ClassVar[Schema]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._CLASSES = tuple(
            struct_of(
                cls.__name__, cls.API_KEY, each, cls.ASKED, cls.ANSWERED, is_flexible=cls.FLEXIBLE
            )
            for each in cls.VERSIONS
        )

    def __init__(self, *values: Any) -> None:
        """Take the values of the fields, in their order."""
        self._values = values

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        return request_struct_class(*self._values)

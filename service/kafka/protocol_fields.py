"""Fields of flexible request versions (KIP-482), and topic ids (KIP-516), which aiokafka 0.14.0 does not have."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from io import BytesIO

from aiokafka.protocol.types import AbstractType, CompactString, TaggedFields

TEXT = CompactString("utf-8")
END = ("tags", TaggedFields)
"""The last field of every structure."""
NO_TAGS: dict[int, bytes] = {}
"""Its value in a request."""

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

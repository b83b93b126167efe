"""Topic ids on the wire, as Kafka's own tools print them."""

from io import BytesIO

import pytest

from snapreplay.service.kafka.protocol_fields import TopicId


@pytest.mark.parametrize(
    ("text", "wire"), [("AAECAwQFBgcICQoLDA0ODw", bytes(range(16))), ("", bytes(16))]
)
def test_an_id_is_sixteen_bytes_and_none_is_zero(text, wire):
    """URL-safe base64 without padding; what follows stays in the stream."""
    assert TopicId.encode(text) == wire
    stream = BytesIO(wire + b"next")
    assert TopicId.decode(stream) == text
    assert stream.read() == b"next"

"""Our own requests, byte by byte and on the wire. What a real coordinator answers to those of members:
test_membership.py."""

from io import BytesIO

import pytest

from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.kafka.requests import DescribeGroup, LeaveGroup, TopicId, TopicIds, struct_of
from tests.support.tampering import topic_id


@pytest.mark.kafka
@pytest.mark.parametrize("version", TopicIds.VERSIONS)
async def test_topic_ids_are_asked_for_in_both_versions(settings, broker, new_topic, version, monkeypatch):
    """11 for a broker before Kafka 3.1."""
    only = struct_of("TopicIds", TopicIds.API_KEY, version, TopicIds.ASKED, TopicIds.ANSWERED)
    monkeypatch.setattr(TopicIds, "_CLASSES", (only,))
    name = await new_topic(1)
    found = await KafkaAdmin(settings).topic_ids([name])
    assert found == {name: topic_id(broker.bootstrap_servers, name)}


def test_the_requests_of_members_are_those_of_the_protocol_guide():
    """Compact arrays and strings begin with their length + 1, null with 0; a dynamic member has no instance id."""
    asked = DescribeGroup("g").prepare({15: (0, 6)})
    assert (asked.API_VERSION, asked.encode()) == (5, b"\2" + b"\2g" + b"\0" + b"\0")
    left = [LeaveGroup("g", "m1", each).prepare({13: (0, 5)}) for each in ("i", None)]
    assert [each.API_VERSION for each in left] == [4, 4]
    assert left[0].encode() == b"\2g" + b"\2" + b"\3m1" + b"\2i" + b"\0" + b"\0"
    assert left[1].encode() == b"\2g" + b"\2" + b"\3m1" + b"\0" + b"\0" + b"\0"


@pytest.mark.parametrize(("text", "wire"), [("AAECAwQFBgcICQoLDA0ODw", bytes(range(16))), ("", bytes(16))])
def test_an_id_is_sixteen_bytes_and_none_is_zero(text, wire):
    """URL-safe base64 without padding; what follows stays in the stream."""
    assert TopicId.encode(text) == wire
    stream = BytesIO(wire + b"next")
    assert TopicId.decode(stream) == text
    assert stream.read() == b"next"

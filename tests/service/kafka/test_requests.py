"""Our own requests, byte by byte and on the wire. What a real coordinator answers to those of members:
test_membership.py."""

from io import BytesIO
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v5
from aiokafka.protocol.types import CompactArray, Int16, Int32
from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.kafka.requests import (
    DecodedOnce,
    DescribeGroups,
    Leaders,
    LeaveGroup,
    Metadata,
    PartitionsLed,
    TopicId,
    array_of,
    struct_of,
)
from tests.support.tampering import topic_id


@pytest.mark.parametrize("version", Metadata.VERSIONS)
async def test_topic_ids_are_asked_for_in_both_versions(settings, broker, new_topic, version, monkeypatch):
    """11 for a broker before Kafka 3.1."""
    only = struct_of("Metadata", Metadata.API_KEY, version, Metadata.ASKED, Metadata.ANSWERED)
    monkeypatch.setattr(Metadata, "STRUCTS", (only,))
    name = await new_topic(1)
    found = await KafkaAdmin(settings).topic_ids([name])
    assert found == {name: topic_id(broker.bootstrap_servers, name)}


def test_the_requests_of_members_are_those_of_the_protocol_guide():
    """Compact arrays and strings begin with their length + 1, null with 0; a dynamic member has no instance id."""
    asked = DescribeGroups("g").prepare({15: (0, 6)})
    assert (asked.API_VERSION, asked.encode()) == (5, b"\2" + b"\2g" + b"\0" + b"\0")
    left = [LeaveGroup("g", "m1", each).prepare({13: (0, 5)}) for each in ("i", None)]
    assert [each.API_VERSION for each in left] == [4, 4]
    assert left[0].encode() == b"\2g" + b"\2" + b"\3m1" + b"\2i" + b"\0" + b"\0"
    assert left[1].encode() == b"\2g" + b"\2" + b"\3m1" + b"\0" + b"\0" + b"\0"


def test_the_newest_version_that_both_know_is_sent():
    """The error tells a broker that is too old from one that lacks the request."""
    asked = Metadata([])
    assert [asked.prepare({3: (0, newest)}).API_VERSION for newest in (13, 11)] == [12, 11]
    with pytest.raises(IncompatibleBrokerVersion, match="Metadata 12 or 11: the broker has 0 to 10"):
        asked.prepare({3: (0, 10)})
    with pytest.raises(IncompatibleBrokerVersion, match="does not know Metadata"):
        asked.prepare({})


@pytest.mark.parametrize(("text", "wire"), [("AAECAwQFBgcICQoLDA0ODw", bytes(range(16))), ("", bytes(16))])
def test_an_id_is_sixteen_bytes_and_none_is_zero(text, wire):
    """URL-safe base64 without padding; what follows stays in the stream."""
    assert TopicId.encode(text) == wire
    stream = BytesIO(wire + b"next")
    assert TopicId.decode(stream) == text
    assert stream.read() == b"next"


TEN: list[Any] = [(0, "t", False, [(0, number, 1, [1, 2], [1], []) for number in range(10)])]
MOVED: list[Any] = [(0, "t", False, [(0, number, 2, [1, 2], [2], [1]) for number in range(10)])]


def metadata(topics, throttle_ms=0):
    return MetadataResponse_v5(throttle_ms, [(1, "h", 9092, None)], "cluster", 1, topics).encode()


@pytest.mark.parametrize("newest", [0, 1, 5, 13])
def test_leaders_are_asked_for_as_the_client_library_does(newest):
    """The name of the answer is a label of the throttling metric."""
    versions = {3: (0, newest)}
    asked, usual = Leaders(["t", "u"]).prepare(versions), MetadataRequest(["t", "u"], allow_auto_topic_creation=False)
    assert asked.encode() == usual.prepare(versions).encode()
    assert asked.RESPONSE_TYPE.__name__.startswith("MetadataResponse")


def test_metadata_that_changed_are_decoded_and_others_only_once():
    """What comes before them may differ. Half an answer is an error each time, also after a whole one."""
    kind: Any = Leaders(["t"]).prepare({3: (5, 5)}).RESPONSE_TYPE
    first, second = kind.decode(metadata(TEN)), kind.decode(metadata(TEN, throttle_ms=7))
    assert (first.topics, second.topics, second.throttle_time_ms) == (TEN, TEN, 7)
    assert second.topics is first.topics
    assert kind.decode(metadata(MOVED)).topics == MOVED
    assert kind.decode(metadata(TEN)).topics == TEN
    for length in range(len(metadata([])), len(metadata(TEN))):
        for _ in range(2):
            with pytest.raises(ValueError, match=r"error|underrun"):
                kind.decode(metadata(TEN)[:length])


def test_what_follows_an_unchanged_list_stays_in_the_stream():
    numbers = DecodedOnce(CompactArray(Int16))
    for _ in range(2):
        stream = BytesIO(b"\3\0\1\0\2next")
        assert numbers.decode(stream) == [1, 2]
        assert stream.read() == b"next"


REPLICAS = st.lists(st.integers(0, 300), max_size=3)
LED = st.tuples(st.integers(0, 99), st.integers(0, 999), st.integers(-1, 300), st.integers(-1, 9))
PARTITION = st.tuples(LED, REPLICAS, REPLICAS, REPLICAS)
ALIKE: st.SearchStrategy[tuple[object, ...]] = LED.map(lambda led: (led, [1, 2, 3], [1], []))
IN_FULL = array_of(
    error_code=Int16,
    partition_index=Int32,
    leader_id=Int32,
    leader_epoch=Int32,
    replicas=CompactArray(Int32),
    in_sync=CompactArray(Int32),
    offline=CompactArray(Int32),
)


@given(st.lists(PARTITION, max_size=9) | st.lists(ALIKE, max_size=9))
@example([((0, 0, 1, 1), list(range(200)), [], []), ((0, 1, 1, 1), list(range(150)), [], [])])
def test_partitions_are_read_as_by_the_schema_whether_they_are_alike_or_not(partitions):
    """Replicas are passed over, and what follows stays in the stream."""
    stream = BytesIO(IN_FULL.encode([(*led, *lists, {}) for led, *lists in partitions]) + b"next")
    assert PartitionsLed.decode(stream) == [(*led, len(replicas)) for led, replicas, *_ in partitions]
    assert stream.read() == b"next"


def test_tags_of_a_partition_are_passed_over():
    """A later version of the protocol may have some: tag 0 with two bytes here, in one partition of two."""
    plain, tagged = [bytes(13) + bytes([number]) + b"\1\1\1" for number in (7, 8)]
    stream = BytesIO(b"\3" + plain + b"\0" + tagged + b"\1\0\2ab" + b"next")
    assert PartitionsLed.decode(stream) == [(0, 0, 0, 7, 0), (0, 0, 0, 8, 0)]
    assert stream.read() == b"next"


def test_a_list_of_partitions_may_be_null():
    """Its length is zero then, and an empty list's is one."""
    assert [PartitionsLed.decode(BytesIO(length)) for length in (b"\0", b"\1")] == [[], []]

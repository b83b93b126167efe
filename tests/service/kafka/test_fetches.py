"""Fetch requests and their answers, as bytes; against a real broker: test_fetch_by_id.py."""

import struct
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, UnknownError

from snapreplay.service.kafka.cursors import Answered
from snapreplay.service.kafka.fetches import Fetch, Limits, Wanted
from snapreplay.service.ports import EpochEnd, TopicPartition

LIMITS = Limits(read_committed=True, wait_ms=10, partition_bytes=100, max_bytes=1000)
T = TopicPartition("t", 0)
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
NEWEST, BEFORE_IDS = {1: (4, 18)}, {1: (0, 12)}
UNKNOWN_SERVER_ERROR = -1


def fetch(*ids: str) -> Fetch:
    """Make the fetch of a partition of each topic."""
    names = ("t", "u")[: len(ids)]
    return Fetch(LIMITS, [Wanted(TopicPartition(name, 0), 7, 4) for name in names], dict(zip(names, ids, strict=True)))


def answers(asked: Fetch, versions: dict[int, tuple[int, int]], partitions: list[Any], topic: str, code: int = 0):
    """Read back the answer that a broker encodes."""
    kind = asked.prepare(versions).RESPONSE_TYPE
    made = kind(0, code, 0, [(topic, partitions, {})] if partitions else [], {})
    return asked.answers(kind.decode(BytesIO(made.encode())))


@pytest.mark.parametrize(
    ("ids", "versions", "expected"),
    [
        ((TOPIC_ID,), NEWEST, (13, TOPIC_ID)),
        ((TOPIC_ID,), BEFORE_IDS, (12, "t")),
        (("",), NEWEST, (12, "t")),
        ((TOPIC_ID, ""), NEWEST, (12, "t")),
    ],
    ids=["by id", "an older broker", "no id", "one has no id"],
)
def test_a_fetch_names_topics_by_id_where_that_is_possible(ids, versions, expected):
    """What is asked reads back as it was written, with the leader epoch of what was read before."""
    asked = fetch(*ids).prepare(versions)
    assert (asked.API_VERSION, asked.topics[0][0]) == expected
    assert asked.topics[0][1][0][:4] == (0, -1, 7, 4)
    assert type(asked).decode(asked.encode()) == asked


def test_a_broker_that_knows_neither_version_is_too_old():
    with pytest.raises(IncompatibleBrokerVersion, match="0 to 11"):
        fetch("").prepare({1: (0, 11)})


@pytest.mark.parametrize(("versions", "topic"), [(NEWEST, TOPIC_ID), (BEFORE_IDS, "t")])
def test_an_answer_reads_back_by_name(versions, topic):
    """Null is no record and no transaction."""
    partitions: list[Any] = [(0, 0, 9, 8, 2, [(5, 6, {})], -1, b"records", {}), (1, 100, -1, -1, -1, None, 3, None, {})]
    assert answers(fetch(TOPIC_ID), versions, partitions, topic) == {
        T: Answered(0, 9, 8, [(5, 6)], -1, b"records"),
        TopicPartition("t", 1): Answered(100, -1, -1, [], 3, b""),
    }


def test_a_tag_says_where_the_log_went_another_way():
    """A broker may send it to a consumer, too."""
    tags = {0: struct.pack(">iq", 3, 520) + bytes(1)}
    answer = SimpleNamespace(
        API_VERSION=13, error_code=0, topics=[(TOPIC_ID, [(0, 0, 9, 9, 0, [], -1, b"", tags)], {})]
    )
    assert fetch(TOPIC_ID).answers(answer)[T].diverging == EpochEnd(3, 520)


@pytest.mark.parametrize("versions", [NEWEST, BEFORE_IDS])
def test_a_fetch_that_is_refused_as_a_whole_is_an_error(versions):
    with pytest.raises(UnknownError):
        answers(fetch(TOPIC_ID), versions, [], "", UNKNOWN_SERVER_ERROR)

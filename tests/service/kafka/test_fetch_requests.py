"""A fetch by topic id on the wire; against a real broker: test_fetch_by_id.py."""

import struct
from io import BytesIO
from types import SimpleNamespace
from typing import Any

from aiokafka.protocol.fetch import FetchRequest

from snapreplay.service.kafka.fetch_requests import FetchById

FETCH = FetchRequest(10, 1, 100, 1, [("t", [(0, 7, 100)])])
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


def test_a_request_by_id_reads_back_and_an_older_broker_is_asked_by_name():
    """Version 13 has the id, 11 the name."""
    fetch = FetchById(FETCH, {"t": TOPIC_ID})
    newest = fetch.prepare({1: (4, 18)})
    assert newest.API_VERSION == 13
    assert type(newest).decode(newest.encode()) == newest
    assert newest.topics[0][0] == TOPIC_ID
    older = fetch.prepare({1: (0, 12)})
    assert (older.API_VERSION, older.topics[0][0]) == (11, "t")


def test_an_answer_by_id_reads_as_one_by_name():
    """An id that the broker does not know is a topic that it does not know; null is no record and no transaction."""
    fetch = FetchById(FETCH, {"t": TOPIC_ID})
    kind = fetch.prepare({1: (4, 18)}).RESPONSE_TYPE
    partitions: list[Any] = [
        (0, 0, 9, 8, 2, [(5, 6, {})], -1, b"records", {}),
        (1, 100, -1, -1, -1, None, -1, None, {}),
        (2, 103, -1, -1, -1, None, -1, None, {}),
        (3, 6, -1, -1, -1, None, -1, None, {}),
    ]
    encoded = kind(0, 0, 0, [(TOPIC_ID, partitions, {})], {}).encode()
    answer = fetch.named(kind.decode(BytesIO(encoded)))
    assert answer.API_VERSION == 11
    ((name, found),) = answer.topics
    assert name == "t"
    assert found[0] == (0, 0, 9, 8, 2, [(5, 6)], -1, b"records")
    assert [(number, code, records) for number, code, *_, records in found[1:]] == [
        (1, 3, b""),
        (2, 3, b""),
        (3, 6, b""),
    ]


def test_an_answer_says_up_to_where_a_log_is_the_same():
    """In a tag of its partition, which clients do not read; by name nobody says so."""
    fetch = FetchById(FETCH, {"t": TOPIC_ID}, {("t", 0): 4})
    newest = fetch.prepare({1: (4, 18)})
    assert newest.topics[0][1][0][:4] == (0, -1, 7, 4)
    answer = SimpleNamespace(
        API_VERSION=13,
        topics=[
            (
                TOPIC_ID,
                [
                    (0, 0, 9, 9, 0, [], -1, b"", {0: struct.pack(">iq", 3, 520) + bytes(1)}),
                    (1, 0, 9, 9, 0, [], -1, b"", {}),
                ],
                {},
            )
        ],
    )
    assert fetch.diverged(answer) == {("t", 0): (3, 520)}
    assert fetch.diverged(SimpleNamespace(API_VERSION=11, topics=[])) == {}

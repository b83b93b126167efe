"""A fetch by topic id on the wire, and which record batch lies directly below a position; against a real broker:
test_fetch_by_id.py."""

import struct
from io import BytesIO
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest

from snapreplay.app.ranges import PositionAnchor
from snapreplay.service.kafka.fetches import FetchById, FetchedBatches, batches_in, readable
from snapreplay.service.ports import LogBatch
from tests.support import record_batches

FETCH = FetchRequest(10, 1, 100, 1, [("t", [(0, 7, 100)])])
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


def batch(base: int, count: int, epoch: int, crc: int, record_format: int = 2, length=49) -> bytes:
    """Make the head of a batch."""
    after = (0, count - 1, 0, 0, -1, -1, -1, count)
    return struct.pack(">qiibIhiqqqhii", base, length, epoch, record_format, crc, *after)


@pytest.mark.parametrize("length", [49 - 2**31, -12 - 61, -12, -1, 0, 14])
def test_a_length_that_a_batch_cannot_have_ends_the_walk(length):
    """A flipped bit on a broker's disk: the client's parser refuses the answer, and a walk back would have no end."""
    damaged = batch(3, 2, 1, 10) + batch(5, 1, 1, 11, length=length) + batch(6, 1, 1, 12)
    assert [each.base_offset for each in islice(batches_in(damaged), 9)] == [3]
    found = FetchedBatches(3, None)
    found.add(damaged)
    assert (found.below(5), found.below(6)) == (PositionAnchor(1, 10), None)


def test_what_was_cut_off_in_an_answer_is_not_what_lies_below():
    """It is fetched again, and the log may have other batches there by then."""
    found = FetchedBatches(3, None)
    found.add(batch(3, 9, 1, 10)[:-1])
    assert found.below(12) is None
    found.add(batch(3, 2, 1, 20) + batch(5, 1, 1, 21))
    assert [found.below(at) for at in (5, 6)] == [PositionAnchor(1, 20), PositionAnchor(1, 21)]


@pytest.mark.parametrize(
    ("content", "is_cleaned"),
    [
        (record_batches.batch(3, 4, [(3, b"k", b"1"), (4, b"k", b"2")]), False),
        (record_batches.batch(3, 4, [(4, b"k", b"2")]), True),
        (record_batches.batch(3, 4), True),
        (record_batches.batch(3, 3, [(3, b"k", None)], attributes=record_batches.DELETE_HORIZON), True),
        (record_batches.marker(3, record_batches.COMMIT, producer_id=1), False),
        (record_batches.emptied_marker(3, producer_id=1), True),
    ],
    ids=["written", "a record removed", "emptied", "with a delete horizon", "marker", "emptied marker"],
)
def test_a_batch_says_whether_the_cleaner_has_written_it(content, is_cleaned):
    """No producer leaves out offsets: brokers refuse that."""
    (found,) = batches_in(content)
    assert found.is_cleaned is is_cleaned


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 40, 68])
def test_an_answer_that_ends_inside_of_its_first_batch_holds_nothing(size):
    """The client would step over a record. Where a later batch is cut off, it reads what is before that."""
    first = record_batches.batch(0, 0, [(0, b"k", b"1")])
    assert readable(first[:size]) == b""
    assert readable(first + first[:size]) == first + first[:size]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13])
def test_a_first_length_that_is_damaged_is_the_clients_to_refuse(length):
    damaged = struct.pack(">qi", 0, length) + bytes(60)
    assert readable(damaged) == damaged


def test_batches_of_an_old_format_are_given_out_before_those_of_the_new_one():
    """The client's compiled parser takes the format of the next batch for that of this one."""
    old = record_batches.message(0, b"k", b"0", 0) + record_batches.message(1, None, b"", 1)
    new = record_batches.batch(2, 2, [(2, b"k", b"1")])
    assert readable(old + new) == old
    assert readable(old + new[:20]) == old + new[:20]
    assert readable(new + old) == new + old
    assert readable(old) == old


def test_whole_batches_are_read_from_their_heads():
    """One that is cut off in its records or in its head is none."""
    whole = batch(3, 2, 1, 10) + batch(5, 1, 2, 11)
    expected = [LogBatch(3, 5, PositionAnchor(1, 10)), LogBatch(5, 6, PositionAnchor(2, 11))]
    assert list(batches_in(whole)) == expected
    assert list(batches_in(whole[:-1])) == list(batches_in(whole[:-8])) == expected[:1]
    assert list(batches_in(None)) == list(batches_in(b"")) == []
    assert list(batches_in(batch(0, 1, 1, 9, record_format=1))) == []


@pytest.mark.parametrize(("position", "crc"), [(10, 7), (11, 20), (12, 20), (13, 21), (14, 21), (16, 22), (17, None)])
def test_below_a_position_lies_the_batch_that_holds_the_offset_before_it(position, crc):
    """At the start what was known, in the middle and at the end of a batch that one; beyond all, nothing is known."""
    found = FetchedBatches(10, PositionAnchor(3, 7))
    found.add(batch(8, 4, 3, 20))  # the fetch began in its middle
    found.add(batch(12, 2, 3, 21) + batch(14, 2, 4, 22))
    assert found.below(position) == (None if crc is None else PositionAnchor(4 if crc == 22 else 3, crc))


def test_what_was_forgotten_leaves_the_rest_as_it_was():
    """Also when all is forgotten."""
    found = FetchedBatches(0, None)
    for base in range(10):
        found.add(batch(base, 1, 0, base))
    found.forget_before(7)
    assert [found.below(at) for at in (7, 8, 10)] == [PositionAnchor(0, at - 1) for at in (7, 8, 10)]
    found.forget_before(11)
    assert found.below(11) is None
    found.add(batch(11, 1, 0, 11))
    assert found.below(12) == PositionAnchor(0, 11)


@pytest.mark.parametrize(("epochs", "fell"), [([3, 3, 5], False), ([3, 2], True)])
def test_a_leader_epoch_that_falls_is_told(epochs, fell):
    """A log has them in order."""
    found = FetchedBatches(0, None)
    told = [found.add(batch(at, 1, epoch, at)) for at, epoch in enumerate(epochs)]
    assert any(told) == fell
    assert found.latest_epoch == epochs[-1]


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

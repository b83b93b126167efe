"""The heads of record batches: which one lies directly below a position."""

import struct

import pytest

from snapreplay.app.ranges import PositionAnchor
from snapreplay.service.kafka.records import FetchedBatches, batches_in, heads_in
from snapreplay.service.ports import LogBatch
from tests.support import record_batches


def batch(base: int, count: int, epoch: int, crc: int, record_format: int = 2, length=49) -> bytes:
    """Make the head of a batch."""
    after = (0, count - 1, 0, 0, -1, -1, -1, count)
    return struct.pack(">qiibIhiqqqhii", base, length, epoch, record_format, crc, *after)


@pytest.mark.parametrize("length", [49 - 2**31, -12 - 61, -12, -1, 0, 14])
def test_a_length_that_a_batch_cannot_have_ends_the_walk(length):
    """A flipped bit on a broker's disk: a walk back would have no end."""
    damaged = batch(3, 2, 1, 10) + batch(5, 1, 1, 11, length=length) + batch(6, 1, 1, 12)
    heads, why = heads_in(damaged)
    assert [each.base_offset for each in heads] == [3]
    assert f"a length of {length} bytes" in why
    found = FetchedBatches(3, None)
    found.add(heads)
    assert (found.below(5), found.below(6)) == (PositionAnchor(1, 10), None)


def test_what_was_cut_off_in_an_answer_is_not_what_lies_below():
    """It is fetched again, and the log may have other batches there by then."""
    found = FetchedBatches(3, None)
    found.add(heads_in(batch(3, 9, 1, 10)[:-1])[0])
    assert found.below(12) is None
    found.add(heads_in(batch(3, 2, 1, 20) + batch(5, 1, 1, 21))[0])
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
    """Where a later batch is cut off, what is before it counts."""
    first = record_batches.batch(0, 0, [(0, b"k", b"1")])
    assert heads_in(first[:size]) == ([], "")
    assert heads_in(first + first[:size]) == heads_in(first)


@pytest.mark.parametrize("base", [0, 4])
def test_offsets_that_do_not_rise_are_damaged(base):
    """The checksum does not cover the first one."""
    heads, why = heads_in(batch(3, 2, 1, 10) + batch(base, 1, 1, 11))
    assert [each.base_offset for each in heads] == [3]
    assert f"offsets {base} to {base} behind 4" in why


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
    found.add(heads_in(batch(8, 4, 3, 20))[0])  # the fetch began in its middle
    found.add(heads_in(batch(12, 2, 3, 21) + batch(14, 2, 4, 22))[0])
    assert found.below(position) == (None if crc is None else PositionAnchor(4 if crc == 22 else 3, crc))


def test_what_was_forgotten_leaves_the_rest_as_it_was():
    """Also when all is forgotten."""
    found = FetchedBatches(0, None)
    for base in range(10):
        found.add(heads_in(batch(base, 1, 0, base))[0])
    found.forget_before(7)
    assert [found.below(at) for at in (7, 8, 10)] == [PositionAnchor(0, at - 1) for at in (7, 8, 10)]
    found.forget_before(11)
    assert found.below(11) is None
    found.add(heads_in(batch(11, 1, 0, 11))[0])
    assert found.below(12) == PositionAnchor(0, 11)


@pytest.mark.parametrize(("epochs", "fell"), [([3, 3, 5], False), ([3, 2], True)])
def test_a_leader_epoch_that_falls_is_reported(epochs, fell):
    """A log has them in order."""
    found = FetchedBatches(0, None)
    told = [found.add(heads_in(batch(at, 1, epoch, at))[0]) for at, epoch in enumerate(epochs)]
    assert any(told) == fell
    assert found.latest_epoch == epochs[-1]

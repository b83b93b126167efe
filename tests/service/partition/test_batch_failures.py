"""What is known of a batch that could not be committed, from one ownership to the next."""

import msgspec

from snapreplay.service.partition.batch_failures import (
    REFUSED_MAX,
    HalfApplied,
    HandlerFailed,
    Refusals,
    RefusedAgain,
)
from snapreplay.service.ports import RefusedRecord, RefusedTopic
from snapreplay.snapshots.program.ranges import InputRange
from snapreplay.snapshots.program.record import RawRecord
from tests.support.entries import increment

TOO_LARGE = RefusedRecord("too large", topic="balances", error="too large")


def batch(count, first=0):
    """An increment of `count` records."""
    ranges = [InputRange("payments", first, first + count, count)] if count else []
    positions = {"payments": first + count}
    return msgspec.structs.replace(increment(7), ranges=ranges, positions=positions)


def test_a_refused_batch_is_cut_down_to_the_record_to_blame():
    """A quarter at a time; the record alone is one that cannot be applied, and its dead letter is final."""
    refusals = Refusals(0)
    assert refusals.refused(batch(16), TOO_LARGE) is None
    assert refusals.caution.records_max == 4
    assert refusals.record is None
    assert refusals.refused(batch(1, first=5), TOO_LARGE) is None
    assert getattr(refusals.record, "record_id", None) == "payments-0-5"
    assert isinstance(refusals.refused(batch(1, first=5), TOO_LARGE), RefusedAgain)


def test_the_record_to_blame_is_forgotten_with_its_topic():
    """In another topic of the name another record has its place, and must not be dead-lettered for it."""
    refusals, failed = Refusals(0), batch(1, first=5)
    failed = msgspec.structs.replace(failed, topic_ids={"payments": "old"})
    refusals.refused(failed, TOO_LARGE)
    refusals.recovered({"payments": "old"})
    assert refusals.record is not None
    refusals.recovered({"payments": "new"})
    assert refusals.record is None


def test_a_topic_that_is_not_there_is_no_records_fault():
    """The same batch is tried a few times, then a person must act."""
    refusals, gone = Refusals(0), RefusedTopic("no such topic", topic="balances", error="unknown")
    ends = [refusals.refused(batch(1), gone) for _ in range(REFUSED_MAX)]
    assert ends[:-1] == [None] * (REFUSED_MAX - 1)
    assert isinstance(ends[-1], RefusedAgain)
    assert refusals.record is None


def test_a_doubt_is_an_accident_once():
    """The second one in a row cuts the batch."""
    refusals = Refusals(0)
    refusals.doubted(batch(16))
    assert refusals.caution.limit_at({"payments": 0}) is None
    refusals.doubted(batch(16))
    assert refusals.caution.limit_at({"payments": 0}) == 4


def test_a_half_applied_record_is_known_by_topic_and_offset():
    """Every other one comes before it, or behind it."""
    half = HalfApplied(HandlerFailed("no"), "my-topic-0-5")
    record = RawRecord("my-topic", 0, 5, 0, None, None)
    assert not half.is_another(record)
    assert half.is_another(msgspec.structs.replace(record, offset=6))

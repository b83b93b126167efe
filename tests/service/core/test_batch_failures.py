"""Tests of what is known of a batch that could not be committed, from one ownership to the next."""

import msgspec

from snapreplay.app.ranges import Anchor, InputRange
from snapreplay.app.record import RawRecord
from snapreplay.errors import RecordId
from snapreplay.service.core.batch_failures import (
    REFUSED_MAX,
    BatchFailures,
    HalfApplied,
    HandlerFailed,
    RefusedAgain,
)
from snapreplay.service.core.bisection import Events
from snapreplay.service.core.kafka_errors import RefusedRecord, RefusedTopic
from tests.support.entries import increment

TOO_LARGE = RefusedRecord("too large", topic="balances", error="too large")


def batch(count, first=0):
    """An increment of `count` records."""
    ranges = [InputRange("payments", first, first + count, count)] if count else []
    positions = {"payments": first + count}
    return msgspec.structs.replace(increment(7), ranges=ranges, positions=positions)


def test_the_record_to_blame_is_forgotten_with_its_topic():
    """In another topic of the name another record has its place, and must not be dead-lettered for it."""
    anchored = {"topic_ids": {"payments": "old"}, "anchors": {"payments": Anchor(5, 1, 2)}}
    failed = msgspec.structs.replace(batch(1, first=5), **anchored)
    failures, final = BatchFailures(0).refused(failed, TOO_LARGE)
    assert final is None
    assert failures.record is not None
    assert failures.record.record_id == RecordId("payments", 0, 5)
    assert failures.anchor == failed.anchors["payments"], "by it another record at 5 is told apart"
    assert failures.recovered({"payments": "old"}) == failures
    assert failures.recovered({"payments": "new"}).record is None


def test_a_topic_that_is_not_there_is_no_records_fault():
    """The same batch is tried a few times, then a person must act."""
    failures, ends = BatchFailures(0), []
    gone = RefusedTopic("no such topic", topic="balances", error="unknown")
    for _ in range(REFUSED_MAX):
        failures, final = failures.refused(batch(1), gone)
        ends.append(final)
    assert ends[:-1] == [None] * (REFUSED_MAX - 1)
    assert isinstance(ends[-1], RefusedAgain)
    assert failures.record is None


def test_a_half_applied_record_is_known_by_topic_and_offset():
    """Every other one comes before it, or behind it."""
    half = HalfApplied(HandlerFailed("no"), RecordId("my-topic", 0, 5))
    record = RawRecord("my-topic", 0, 5, 0, None, None)
    assert not half.is_another(record)
    for other in ({"offset": 6}, {"offset": 4}, {"topic": "refunds"}):
        assert half.is_another(msgspec.structs.replace(record, **other))


def test_a_timer_is_to_blame_when_it_was_alone():
    """With a record or another timer beside it, nothing is named yet; an entry that expired is not a timer."""
    for failed, events in (
        (batch(1), Events(1, "ring at 5")),
        (batch(0), Events(2, "ring at 5")),
        (batch(0), Events(1, None)),
    ):
        failures, final = BatchFailures(0).refused(failed, TOO_LARGE, events)
        assert (failures.record, final) == (None, None)
    failures, final = failures.refused(batch(0), TOO_LARGE, Events(1, "ring at 5"))
    assert final is None
    assert failures.record is not None
    assert (failures.record.timer_id, failures.record.record_id) == ("ring at 5", None)
    assert "made of timer ring at 5: too large" in failures.record.message
    _, final = failures.refused(batch(0), TOO_LARGE, Events(1, "ring at 6"))
    assert isinstance(final, RefusedAgain), "its dead letter is refused, too"


def test_a_timer_is_left_out_in_its_batch_only():
    """A doubt of weeks later must not take the next time of a periodic timer for the one that was refused."""
    failures, _ = BatchFailures(0).refused(batch(0), TOO_LARGE, Events(1, "report at 5"))
    at = batch(0).batch
    assert failures.left_out_at(at) is failures.record is not None
    assert failures.left_out_at(at + 1) is None
    failures, _ = BatchFailures(0).refused(batch(1), TOO_LARGE)
    assert failures.left_out_at(at + 1) is failures.record is not None
    assert BatchFailures(0).left_out_at(at) is None


def test_an_expiry_sends_nothing_that_could_be_to_blame():
    """Alone in a refused batch it cannot be left out: the third time the partition stops, with what the broker said."""
    failures, final = BatchFailures(0), None
    for times in range(1, 4):
        assert final is None, times
        failures, final = failures.refused(batch(0), TOO_LARGE, Events(1, None))
    assert isinstance(final, RefusedAgain)
    assert ("too large" in final.message, failures.record) == (True, None)
    assert "snapreplay retry" in final.hint


def test_a_timer_that_is_refused_at_its_next_time_is_to_blame_again():
    """Its dead letter was taken: the partition must not stop at it. Simulator, seed 843."""
    failures, _ = BatchFailures(0).refused(batch(0), TOO_LARGE, Events(1, "ring at 5"))
    later = msgspec.structs.replace(batch(0), batch=9)
    failures, _ = failures.refused(later, TOO_LARGE, Events(2, "ring at 9"))
    failures, final = failures.refused(later, TOO_LARGE, Events(1, "ring at 9"))
    assert final is None
    assert failures.record is not None
    assert failures.record.timer_id == "ring at 9"

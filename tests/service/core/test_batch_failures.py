"""Tests of what is known of a batch that could not be committed, from one ownership to the next."""

import msgspec

from snapreplay.app.ranges import Anchor, InputRange
from snapreplay.errors import RecordError, RecordId
from snapreplay.service.core.batch_failures import (
    REFUSED_MAX,
    BatchBisection,
    BatchFailures,
    DeadLetterGauge,
    DeadLetterLimits,
    Events,
    RefusedAgain,
    handler_failed,
    only_record,
)
from snapreplay.service.core.kafka_errors import RefusedRecord, RefusedTopic
from tests.support import apps
from tests.support.entries import increment

TOO_LARGE = RefusedRecord("too large", topic="balances", error="too large")


def batch(count, first=0):
    """An increment of `count` records."""
    ranges = [InputRange("payments", first, first + count, count)] if count else []
    positions = {"payments": first + count}
    return msgspec.structs.replace(increment(7), ranges=ranges, positions=positions)


def test_dead_letters_are_the_last_resort():
    """The way that changes nothing comes first."""
    failure = RecordError("no amount", record_id=RecordId("payments", 0, 5))
    hint = handler_failed(failure, 0, apps.ledger("app")).hint
    assert "as a last resort, send the record to the dead letters" in hint
    assert hint.startswith("first, deploy a fixed handler")


def test_the_record_to_blame_is_forgotten_with_its_topic():
    """In another topic of the name another record has its place, and must not be dead-lettered for it."""
    anchored = {"topic_ids": {"payments": "old"}, "anchors": {"payments": Anchor(5, 1, 2)}}
    failed = msgspec.structs.replace(batch(1, first=5), **anchored)
    failures, final = BatchFailures(0).refused(failed, TOO_LARGE)
    assert final is None
    assert failures.record is not None
    assert failures.record.record_id == RecordId("payments", 0, 5)
    assert failures.anchor == failed.anchors["payments"], "it distinguishes another record at 5"
    assert failures.recovered({"payments": "old"}) == failures
    assert failures.recovered({"payments": "new"}).record is None


def test_the_row_of_a_broadcast_table_to_blame_is_named_by_its_place():
    """Its anchor is that of the input: once another row is at its offset, that one is tried."""
    table = "rates/2"
    failed = increment(batch=4, ranges=[InputRange(table, 0, 2, 1)], anchors={table: Anchor(1, 5, 6)})
    failures, final = BatchFailures(3).refused(failed, TOO_LARGE)
    assert final is None
    assert failures.record is not None
    assert (failures.record.record_id, failures.anchor) == (RecordId("rates", 2, 1), Anchor(1, 5, 6))


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
    """A doubt of weeks later must not take the next time of a periodic timer for the refused one."""
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


def failed(batch, start, end):
    """A batch of the records in [start, end) of one input."""
    part = InputRange("payments", start, end, end - start)
    return increment(batch, ranges=[part], positions={"payments": end, "refunds": 7})


def test_one_doubt_is_an_accident_and_the_second_may_be_the_batch():
    """Only from the second one in a row on are batches smaller."""
    once = BatchBisection().doubted(failed(3, 0, 100))
    assert (once.times, once.limit_at({"payments": 0})) == (1, None)
    twice = once.doubted(failed(3, 0, 100))
    assert (twice.times, twice.limit_at({"payments": 0, "refunds": 7})) == (2, 25)
    assert twice.doubted(failed(3, 0, 25)).limit_at({"payments": 0}) == 6


def test_the_limit_ends_where_the_failed_batch_ended():
    """What comes behind it is none of its business."""
    caution = BatchBisection().refused(failed(3, 0, 100))
    assert caution.limit_at({"payments": 100, "refunds": 7}) is None
    assert caution.limit_at({"payments": 100, "refunds": 6}) == 25


def test_a_doubt_at_another_batch_starts_a_new_row_and_keeps_the_limit():
    """The records that are suspected are not cleared by an accident before them."""
    caution = BatchBisection().refused(failed(3, 0, 100)).doubted(failed(4, 25, 50))
    assert (caution.times, caution.limit_at({"payments": 25})) == (1, 25)


def test_every_record_that_is_refused_is_found():
    """Quarter by quarter, whichever and however many they are; all others are committed."""
    for bad in ({0}, {99}, {37}, {0, 1, 2}, {5, 50, 95}, set(range(100))):
        assert hunt(100, bad) == (bad, set(range(100)) - bad)


def hunt(count, bad):
    """Return (blamed, committed) of a partition with these records."""
    caution, batch, position = BatchBisection(), 1, 0
    blamed: set[int] = set()
    committed: set[int] = set()
    for _ in range(5 * count):
        limit = caution.limit_at({"payments": position, "refunds": 7}) or count
        records = range(position, min(position + limit, count))
        if not records:
            break
        if not bad & set(records) - blamed:
            committed |= set(records) - blamed
            batch, position = batch + 1, records.stop
            continue
        trial = failed(batch, position, records.stop)
        caution = caution.refused(trial)
        if only_record(trial, 0) is not None:
            blamed.add(position)
    return blamed, committed


def test_timers_are_cut_down_like_records():
    """They have no positions: the limit holds for as many batches as they fill."""
    at = increment(3).positions
    caution = BatchBisection().refused(increment(3), 100)
    assert [caution.limit_at(at, batch) for batch in (3, 6, 7)] == [25, 25, None]
    one = caution.refused(increment(3), 2)
    assert [one.limit_at(at, batch) for batch in (3, 4, 5)] == [1, 1, None]
    assert BatchBisection().refused(failed(3, 0, 4)).limit_at({"payments": 4, "refunds": 7}, 3) is None


LIMITS = DeadLetterLimits(in_a_row=5, percent=50.0, window_records=10)


def after(*batches):
    gauge = DeadLetterGauge()
    for applied, skipped in batches:
        gauge = gauge.after(applied, skipped, LIMITS)
    return gauge


def test_a_row_of_failures_is_a_flood():
    """Counted over batches; the limit itself is none."""
    assert after((0, 2), (0, 3)).flooded(LIMITS) is None
    assert "6 records in a row" in (after((0, 2), (0, 3), (0, 1)).flooded(LIMITS) or "")


def test_a_percentage_is_judged_when_the_window_is_full():
    """Half of the first two records is no flood, half of the window is."""
    assert after((1, 1)).flooded(LIMITS) is None
    assert after((2, 1), (2, 1), (2, 2)).flooded(LIMITS) is None
    assert after((4, 4), (1, 1)).flooded(LIMITS) is None
    assert "60 % of the last 10 records" in (after((3, 3), (1, 3)).flooded(LIMITS) or "")


def test_a_full_window_is_followed_by_an_empty_one():
    """Old failures are forgotten with their window; a row continues into the next one."""
    full = after((7, 1), (0, 2))
    assert full.flooded(LIMITS) is None
    following = full.after(0, 1, LIMITS)
    assert (following.window_records, following.window_skipped, following.in_a_row) == (1, 1, 3)

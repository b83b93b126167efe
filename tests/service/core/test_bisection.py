"""A batch that cannot be committed is cut until its record is found, or it fits."""

from snapreplay.app.ranges import InputRange
from snapreplay.errors import RecordId
from snapreplay.service.core.bisection import BatchBisection, only_record, records_in
from tests.support.entries import increment


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


def test_a_refusal_cuts_at_once():
    """The broker has said so: it is the batch."""
    assert BatchBisection().refused(failed(3, 0, 100)).limit_at({"payments": 99}) == 25


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


def test_the_only_record_of_a_batch_is_named_by_where_its_range_ends():
    """A range may begin with markers; several records, or none, have no name."""
    one = increment(3, ranges=[InputRange("payments", 4, 9, 1)])
    assert only_record(one, 2) == RecordId("payments", 2, 8)
    assert only_record(increment(3), 2) is None
    several = increment(3, ranges=[InputRange("payments", 4, 9, 1), InputRange("refunds", 0, 1, 1)])
    assert (only_record(several, 2), records_in(several)) == (None, 2)


def test_timers_are_cut_down_like_records():
    """They have no positions: the limit holds for as many batches as they fill."""
    at = increment(3).positions
    caution = BatchBisection().refused(increment(3), 100)
    assert [caution.limit_at(at, batch) for batch in (3, 6, 7)] == [25, 25, None]
    one = caution.refused(increment(3), 2)
    assert [one.limit_at(at, batch) for batch in (3, 4, 5)] == [1, 1, None]
    assert (
        BatchBisection().refused(failed(3, 0, 4)).limit_at({"payments": 4, "refunds": 7}, 3) is None
    )

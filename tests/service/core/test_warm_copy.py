"""A standby's warm copy in memory: it takes the place of the snapshot, or is left alone."""

import tracemalloc

import msgspec
import pytest

from snapreplay.app.ranges import InputRange
from snapreplay.errors import RetryableError
from snapreplay.service.core import effects, events
from snapreplay.service.core.phase import Phase, RestoreMode
from snapreplay.service.core.recovery import step
from snapreplay.service.core.retained import RecordsSince, WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.snapshots.plan import FromSnapshot
from tests.service.core.test_recovery import FOUND, LAST, SEEN, STARTED, WHOLE, drive
from tests.support.entries import increment, pointer

COPY = WarmCopy(FoundIncrement(increment(7), 21))


def test_a_warm_copy_takes_the_place_of_the_snapshot():
    """The way is the same but for the load: the log decides what is missing."""
    recovery, effect = drive(*STARTED, copy=COPY)
    assert (recovery.phase, recovery.copy) == (Phase.ADVANCING, None)
    assert effect == effects.Advance(COPY.base, LAST, RestoreMode.CHANGES, COPY)
    _, effect = step(recovery, events.Advanced())
    assert effect == effects.CheckInputs(LAST)


@pytest.mark.parametrize(
    ("copy", "is_tried"),
    [
        (COPY, True),
        (WarmCopy(LAST), True),
        (WarmCopy(FoundIncrement(increment(9, owner_epoch=29), LAST.offset)), False),
        (WarmCopy(FoundIncrement(increment(9), LAST.offset - 4)), False),
    ],
)
def test_a_copy_of_another_chain_is_restored_in_full(copy, is_tried):
    """Whether that shows before it is brought forward or then."""
    recovery, effect = drive(*STARTED, copy=copy)
    assert isinstance(effect, effects.Advance) == is_tried
    if is_tried:
        _, effect = step(recovery, events.CopyUnusable())
    assert effect == effects.Load(FromSnapshot(pointer(8)), LAST)


def batch(number, records, *pointers):
    return increment(number, ranges=[InputRange("payments", 0, records, records)], pointers=list(pointers))


def test_records_are_counted_from_the_batch_of_the_newest_snapshot():
    """Its pointer comes later: what was applied in between is in no snapshot. Those before the copy count together."""
    since = RecordsSince(batch(7, 1), 5)
    steps = [
        batch(8, 3),
        batch(9, 2, pointer(7)),
        batch(10, 4, pointer(7)),
        batch(11, 1, pointer(9)),
        batch(12, 0, pointer(11)),
    ]
    assert [since.applied(each) for each in steps] == [8, 5, 9, 5, 0]


def test_records_are_counted_in_bounded_memory():
    """However many batches come without a snapshot. Where it counts runs of batches, one that a snapshot has in part
    counts whole; what all of it has does not count."""
    since, last = RecordsSince(batch(0, 0), 0), 20_000
    tracemalloc.start()
    try:
        counts = [since.applied(batch(number, 2)) for number in range(1, last + 1)][-1:]
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts == [2 * last]
    assert kept_bytes < 500_000
    covered = last // 2 + 1
    left = since.applied(batch(last + 1, 0, pointer(covered)))
    assert 2 * (last - covered) <= left <= 2 * (last - covered) + 2 * last // 100
    assert since.applied(batch(last + 2, 3, pointer(last))) == 3


def test_a_copy_is_kept_until_it_was_tried_and_never_tried_twice():
    """What failed on the way has left it between two batches."""
    error = events.EffectFailed(RetryableError("no broker"))
    assert drive(*FOUND, error, *STARTED, copy=COPY)[1].copy is COPY
    assert drive(*STARTED, error, *STARTED, copy=COPY)[1] == effects.Load(FromSnapshot(pointer(8)), LAST)


def test_a_log_that_ends_before_the_copy_has_lost_its_end():
    """The copy stays in memory: it may be the only copy of that batch."""
    ahead = WarmCopy(FoundIncrement(increment(10), 33))
    recovery, effect = drive(*STARTED, copy=ahead)
    assert isinstance(effect.error, IncrementsBehind)
    assert "batch 10 was committed at offset 33, as the warm copy of this process says" in effect.error.message
    assert recovery.copy is ahead


def test_after_a_decision_a_copy_that_is_ahead_is_of_no_use():
    """An operator has taken the log as it is."""
    ahead = WarmCopy(FoundIncrement(increment(10), 33))
    decided = FoundIncrement(msgspec.structs.replace(LAST.increment, last_anew_offset=5), LAST.offset)
    _, effect = drive(*SEEN, events.WindowRead(decided), events.StartsRead(WHOLE), copy=ahead)
    assert isinstance(effect, effects.Load)

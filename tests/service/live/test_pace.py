"""Tests of how large the next batch may be, and of when a state that keeps no digest is hashed."""

import pytest

from snapreplay.app.ranges import InputRange
from snapreplay.service.core.batch_failures import BatchBisection
from snapreplay.service.live.pace import ALONE_BATCHES, SLOW_SECONDS, Pace
from tests.support.entries import increment

FAILED = increment(3, ranges=[InputRange("in", 0, 16, 16)], positions={"in": 16})


def test_after_a_failure_batches_are_small_up_to_where_it_was_and_grow_behind() -> None:
    """Doubling, to what is set; meanwhile none is under way beside a handler."""
    told: list[float] = []
    pace, sizes, alone = Pace(50, told.append), [], 0
    pace.careful(BatchBisection().refused(FAILED), {"in": 0}, 3)
    for position in (4, 8, 12, 16, *range(17, 40)):
        sizes.append(pace.records_max)
        alone += pace.is_alone
        pace.committed({"in": position}, 4)
    assert sizes[:9] == [4, 4, 4, 4, 8, 16, 32, 50, 50]
    assert alone == ALONE_BATCHES


@pytest.mark.parametrize(("seconds", "alone"), [(SLOW_SECONDS, 0), (SLOW_SECONDS + 0.1, 2)])
def test_a_slow_handler_has_no_transaction_beside_it(seconds: float, alone: int) -> None:
    """The one under way could outlast its deadline; a quick batch ends that."""
    told: list[float] = []
    pace = Pace(50, told.append)
    pace.applied(seconds)
    assert told == [pace.apply_seconds] == [seconds]
    found = 0
    while pace.is_alone:
        found += 1
        pace.committed({"in": 1}, 1)
    assert (found, pace.records_max) == (alone, 50)

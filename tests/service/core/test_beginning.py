"""Tests whether an app waits for its genesis: every kind of two partitions."""

from itertools import product

import pytest

from snapreplay.service.core.beginning import PartitionTraces, StartFinding, beginning
from snapreplay.service.core.lineage import Fencer

EMPTY, GENESIS, RUNS = PartitionTraces(), PartitionTraces(True, True), PartitionTraces(True)
UNTOUCHED, FENCED = (
    PartitionTraces(True, True, is_untouched=True),
    PartitionTraces(fenced_by=Fencer.OWNER),
)
KILLED = PartitionTraces(fenced_by=Fencer.INIT)
TRACES = [PartitionTraces(log_start_offset=3), PartitionTraces(has_snapshots=True)]
KINDS = [EMPTY, KILLED, GENESIS, UNTOUCHED, FENCED, RUNS, *TRACES]


@pytest.mark.parametrize(
    "kinds", [(EMPTY,), (EMPTY, EMPTY), (GENESIS, EMPTY), (EMPTY, GENESIS), (KILLED, EMPTY)]
)
def test_only_a_new_app_is_awaited(kinds):
    """Nothing at all, or an `init` that is under way or was interrupted."""
    assert beginning(kinds) is StartFinding.AWAITED


@pytest.mark.parametrize("kinds", [k for n in (1, 2, 3) for k in product(KINDS, repeat=n)])
def test_whatever_shows_that_the_app_ran_is_left_to_the_recoveries(kinds):
    """A lost log is never waited for: it would look like a new app. A fence without a claim is that of an interrupted
    `init` only beside a genesis that no owner has claimed."""
    empty = {EMPTY, KILLED, FENCED} if UNTOUCHED in kinds else {EMPTY, KILLED}
    awaited = bool(empty & set(kinds)) and set(kinds) <= {*empty, GENESIS, UNTOUCHED}
    assert beginning(kinds) is (StartFinding.AWAITED if awaited else StartFinding.BEGUN)

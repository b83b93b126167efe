"""Tests of what the coordinator's memory of fences proves."""

from itertools import product

import pytest

from snapreplay.service.core.lineage import (
    Fencer,
    LastFence,
    Lineage,
    PartitionTraces,
    awaits_genesis,
    fencer,
    is_ending,
    is_first,
    is_left_open,
    unbroken,
)

OURS = Lineage(7, 4)
STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "CompleteCommit"),
    *("PrepareAbort", "CompleteAbort", "PrepareEpochFence"),
)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "state", "is_unbroken"),
    [
        *((7, 4, state, True) for state in ("Empty", "Ongoing", "CompleteCommit")),
        *((7, 5, state, state not in ("Ongoing", "PrepareCommit", "CompleteCommit")) for state in STATES),
        *((producer_id, epoch, "Empty", False) for producer_id, epoch in ((7, 6), (8, 0))),
        (7, 6, "CompleteAbort", False),
    ],
)
def test_another_fence_may_have_committed_something(producer_id, epoch, state, is_unbroken):
    """Not where the last one is ours or unknown, the transaction timed out, or nothing was committed with the next."""
    assert unbroken(OURS, LastFence(Lineage(producer_id, epoch), state)) is is_unbroken
    assert unbroken(OURS, None)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "state", "is_harmless"),
    [(7, 6, "Empty", True), (7, 6, "CompleteCommit", False), (7, 7, "Empty", False), (8, 6, "Empty", False)],
)
def test_a_fence_that_ends_an_open_transaction_raises_the_epoch_by_two(producer_id, epoch, state, is_harmless):
    """Two fences would raise it further, because the transaction was not asked to commit."""
    assert unbroken(OURS, LastFence(Lineage(producer_id, epoch), state), left_open=True) is is_harmless


def test_only_our_own_open_transaction_was_left_open():
    """Any other state, or any other epoch, may have committed something."""
    assert is_left_open(OURS, LastFence(OURS, "Ongoing"))
    assert not is_left_open(OURS, LastFence(OURS, "CompleteCommit"))
    assert not is_left_open(OURS, LastFence(Lineage(7, 5), "Ongoing"))
    assert not is_left_open(OURS, None)


OF_INIT = {
    *((0, state) for state in ("Empty", "Ongoing")),
    *((1, state) for state in ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")),
}


@pytest.mark.parametrize("epoch", range(4))
@pytest.mark.parametrize("state", STATES)
def test_what_only_an_init_leaves_behind(epoch, state):
    """An owner's fence is never the first one, so its transaction never has one of these epochs and states."""
    expected = Fencer.INIT if (epoch, state) in OF_INIT else Fencer.OWNER
    assert fencer(LastFence(Lineage(7, epoch), state)) is expected
    assert is_first(Lineage(7, epoch)) is (epoch == 0)


def test_who_is_not_known_has_not_fenced():
    """Or the coordinator has forgotten the fence, after a week."""
    assert fencer(None) is Fencer.NONE


@pytest.mark.parametrize("state", STATES)
def test_a_transaction_that_ends_keeps_the_coordinator_from_answering(state):
    """All partitions must have the end before the next fence."""
    expected = state in ("PrepareEpochFence", "PrepareAbort", "PrepareCommit")
    assert is_ending(LastFence(Lineage(1, 2), state)) is expected


EMPTY, GENESIS, RUNS = PartitionTraces(is_empty=True), PartitionTraces(True, True), PartitionTraces(True)
UNTOUCHED, FENCED = (
    PartitionTraces(True, True, is_untouched=True),
    PartitionTraces(is_empty=True, fenced_by=Fencer.OWNER),
)
KILLED = PartitionTraces(is_empty=True, fenced_by=Fencer.INIT)
TRACES = PartitionTraces()  # records were deleted, or there are snapshots
KINDS = [EMPTY, KILLED, GENESIS, UNTOUCHED, FENCED, RUNS, TRACES]


@pytest.mark.parametrize("kinds", [(EMPTY,), (EMPTY, EMPTY), (GENESIS, EMPTY), (EMPTY, GENESIS), (KILLED, EMPTY)])
def test_only_a_new_app_is_awaited(kinds):
    """Nothing at all, or an `init` that is under way or was interrupted."""
    assert awaits_genesis(kinds)


def test_any_sign_that_the_app_ran_is_left_to_the_recoveries():
    """A lost log is never waited for: it would look like a new app. A fence without a claim is that of an interrupted
    `init` only beside a genesis that no owner has claimed."""
    for kinds in (each for n in (1, 2, 3) for each in product(KINDS, repeat=n)):
        empty = {EMPTY, KILLED, FENCED} if UNTOUCHED in kinds else {EMPTY, KILLED}
        awaited = bool(empty & set(kinds)) and set(kinds) <= {*empty, GENESIS, UNTOUCHED}
        assert awaits_genesis(kinds) is awaited, kinds

"""The rule: what the log must hold before a state in memory may be dropped."""

from dataclasses import replace

import msgspec
import pytest

from snapreplay.service.core import custody
from snapreplay.service.core.custody import Verdict, verdict
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import OWN_KIND
from tests.support.entries import increment

TOPIC = "ledger-increments"
OLD, NEW = {TOPIC: "old"}, {TOPIC: "new"}


def made(batch, *, epoch, ids=OLD, decision=None):
    """An increment that bears these topic ids."""
    return msgspec.structs.replace(
        increment(batch, owner_epoch=epoch), topic_ids=ids, decision=decision
    )


LAST = made(9, epoch=30)
DOUBTFUL = made(10, epoch=30)
KEPT = RetainedState(LAST, 33, DOUBTFUL)


def judged(found, ids=OLD, **changes):
    return verdict(replace(KEPT, **changes), found, TOPIC, ids)


@pytest.mark.parametrize("found", [FoundIncrement(LAST, 33), FoundIncrement(DOUBTFUL, 37)])
def test_the_same_log_that_ends_with_our_batch_or_the_one_in_doubt(found):
    """Nothing has happened to it."""
    assert judged(found) is Verdict.SAME
    assert judged(found, ids={}) is Verdict.SAME


def test_a_log_without_any_increment_has_lost_the_chain():
    """Deleted and created again, or all records deleted."""
    assert judged(None) is Verdict.ONLY_COPY
    assert judged(None, NEW) is Verdict.ONLY_COPY


@pytest.mark.parametrize("found", [FoundIncrement(LAST, 33), FoundIncrement(DOUBTFUL, 37)])
def test_our_own_increments_in_another_log_are_orphans(found):
    """They were committed by an owner that did not know of the new topic: nothing leads to them."""
    assert judged(found, NEW) is Verdict.ONLY_COPY


def test_a_log_that_was_cut_has_lost_the_chain():
    """An older increment of ours is the last one: by an unclean election, or an old backup; also when we have written
    to what was left."""
    assert judged(FoundIncrement(made(5, epoch=30), 21)) is Verdict.ONLY_COPY
    assert judged(FoundIncrement(made(5, epoch=12), 14), NEW) is Verdict.ONLY_COPY
    assert judged(FoundIncrement(LAST, 33), replaced=True) is Verdict.ONLY_COPY


def test_a_newer_owner_that_went_on_is_the_truth():
    """In the same log, and in a new one where its chain began."""
    assert judged(FoundIncrement(made(10, epoch=40), 44)) is Verdict.LEADS_ON
    assert judged(FoundIncrement(made(10, epoch=2, ids=NEW), 3), NEW) is Verdict.LEADS_ON


def test_a_newer_owner_that_is_behind_is_a_conflict():
    """It recovered from a cut log and went on: neither state holds all."""
    assert judged(FoundIncrement(made(8, epoch=40), 44)) is Verdict.DISPUTED
    assert judged(FoundIncrement(made(9, epoch=2, ids=NEW), 3), NEW) is Verdict.DISPUTED


def test_what_an_operator_decided_is_not_disputed():
    """Also when an older state was accepted; a decision of another process is none."""
    accepted = {"finding": "increments-lost-12345678"}
    by_itself = {"finding": f"{OWN_KIND}-12345678"}
    assert judged(FoundIncrement(made(4, epoch=40, decision=accepted), 44)) is Verdict.LEADS_ON
    assert judged(FoundIncrement(made(4, epoch=40, decision=by_itself), 44)) is Verdict.DISPUTED


def test_who_was_fenced_since_does_not_write():
    """The other owner may have committed more than we know, and the log with it is gone."""
    assert judged(None, NEW, unbroken=False) is Verdict.DISPUTED
    assert judged(FoundIncrement(made(5, epoch=30), 21), unbroken=False) is Verdict.DISPUTED
    assert judged(FoundIncrement(LAST, 33), unbroken=False) is Verdict.SAME


def test_what_cannot_be_undone_is_restored_from_a_log_that_is_whole():
    """A state that is no map holds a batch that was not committed: the log is right."""
    assert judged(FoundIncrement(LAST, 33), undoable=False) is Verdict.LEADS_ON
    assert judged(FoundIncrement(DOUBTFUL, 37), undoable=False) is Verdict.SAME
    assert judged(None, undoable=False) is Verdict.ONLY_COPY


def test_what_can_be_neither_undone_nor_restored_is_the_only_copy():
    """The log ends with our batch, but the snapshots that it points to are gone with their topic."""
    found = FoundIncrement(LAST, 33)
    assert verdict(replace(KEPT, undoable=False), found, TOPIC, OLD, restorable=False) is (
        Verdict.ONLY_COPY
    )
    assert verdict(KEPT, found, TOPIC, OLD, restorable=False) is Verdict.SAME


def test_what_is_said_names_the_state_and_the_command():
    """The batch, and how to have the topic again."""
    error = custody.missing("ledger", TOPIC, 3, LAST)
    assert "topic ledger-increments of app 'ledger' was deleted" in error.message
    assert "partition 3 (batch 9" in error.message
    assert "`snapreplay topics ensure MODULE:APP`" in error.hint

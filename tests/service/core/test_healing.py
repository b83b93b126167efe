"""A state in memory that is the only copy: what a recovery does with it, event by event."""

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay.app.ranges import Anchor
from snapreplay.errors import RetryableError, StopError
from snapreplay.service.core import effects, events
from snapreplay.service.core.custody import DoubtUnresolved, IncrementsMissing, StateDisputed
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.recovery import step
from snapreplay.service.core.refusals import NotInitialised
from snapreplay.service.core.retained import Ending, RetainedState, Warm
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import NO_OFFSET, ChangesRef, Genesis
from tests.service.core.test_recovery import CLAIMED, FENCED, WHOLE, drive
from tests.support.entries import increment, pointer

OLD = {"payments": "in", "ledger-increments": "old", "ledger-snapshots": "snaps"}
NOW = {"ledger-increments": "new", "ledger-snapshots": "snaps"}
LAST = msgspec.structs.replace(increment(9, owner_epoch=30), topic_ids=OLD)
DOUBTFUL = msgspec.structs.replace(increment(10, owner_epoch=30), topic_ids=OLD)
KEPT = RetainedState(LAST, 33, ending=None, lineage=Lineage(1, 1))
DOUBT = replace(KEPT, doubtful=DOUBTFUL, ending=Ending(asked=False))
ASKED = replace(DOUBT, ending=Ending(asked=True, output=("balances", 0, 7)))
ALONE = events.FenceDone(Lineage(1, 2), unbroken=True)
EMPTY = (events.Begin(), ALONE, events.ClaimAcknowledged("c1", 0), events.ClaimSeen(0, None), events.TopicIdsRead(NOW))


def begun(recovery):
    """Return what is written once the store is ready."""
    recovery, effect = step(recovery, events.Reentered())
    assert isinstance(effect, effects.BeginChain)
    return recovery, effect


def checking(kept):
    """The log ends with the batch that is in memory."""
    found = FoundIncrement(kept.last, kept.last_offset)
    search = events.ClaimAcknowledged("c1", 50), events.ClaimSeen(0, None), events.WindowRead(found)
    ended = events.TopicIdsRead(OLD), events.Reentered()
    recovery, effect = drive(events.Begin(), ALONE, *search, *ended, kept=kept)
    assert effect == effects.CheckInputs(found, in_memory=True)
    return recovery


def test_an_empty_log_gets_the_state_in_memory():
    """Claimed and seen, then all of it is written with the ids of today, then the inputs are checked, then LIVE."""
    recovery, effect = drive(*EMPTY, kept=KEPT)
    assert effect == effects.Reenter(FoundIncrement(LAST, 33), Warm.KEPT)
    recovery, effect = begun(recovery)
    assert effect.standing == msgspec.structs.replace(LAST, topic_ids={**OLD, **NOW})
    assert "deleted and created again and holds no increment" in effect.problem
    first = FoundIncrement(increment(10, owner_epoch=0), 1)
    recovery, effect = step(recovery, events.StateWritten(first))
    assert effect == effects.CheckInputs(first, in_memory=True)
    assert recovery.kept == RetainedState(first.increment, 1, lineage=Lineage(1, 2))
    recovery, effect = step(recovery, events.InputsChecked())
    assert effect == effects.GoLive(first, 0, None, fell_back=False)


@pytest.mark.parametrize("reaction", [RetryableError, StopError])
def test_a_state_that_only_a_replay_leads_to_is_written_before_its_input_is_given_up(reaction):
    """The input is missing, or another one: what was processed since the snapshot is in memory only. Once."""
    lean = increment(9, owner_epoch=30, anchors={"payments": Anchor(8, 1, 2)})
    found, gone = FoundIncrement(lean, 33), reaction("gone")
    recovery = checking(RetainedState(lean, 33, lineage=Lineage(1, 1)))
    recovery, effect = step(recovery, events.InputsRefused(gone))
    assert effect == effects.WriteState(found, "gone")
    pointing = {"pointers": [pointer(9)], "anchors": lean.anchors}
    written = FoundIncrement(increment(10, owner_epoch=50, **pointing), 53)
    recovery, effect = step(recovery, events.StateWritten(written))
    assert effect == effects.CheckInputs(written, in_memory=True)
    _, effect = step(recovery, events.InputsRefused(gone))
    assert isinstance(effect, effects.Wait | effects.Fail)
    assert effect.error is gone


def test_a_state_that_nothing_leads_to_any_more_is_written_before_its_inputs_are_asked_for():
    """That takes half a minute, in which its next owner would fence this one, and be fenced in return."""
    last = increment(9, owner_epoch=30, anchors={"payments": Anchor(8, 1, 2)})
    found = FoundIncrement(last, 33)
    search = events.ClaimAcknowledged("c1", 50), events.ClaimSeen(0, None), events.WindowRead(found)
    ended = events.TopicIdsRead(OLD, restorable=False), events.Reentered()
    kept = RetainedState(last, 33, lineage=Lineage(1, 1))
    _, effect = drive(events.Begin(), ALONE, *search, *ended, kept=kept)
    assert isinstance(effect, effects.WriteState)


@pytest.mark.parametrize(
    ("newest", "restorable", "is_written"),
    [(8, True, False), (7, True, True), (8, False, True)],
    ids=["in it", "one batch later", "that snapshot is lost"],
)
def test_a_state_that_is_in_the_newest_snapshot_needs_no_input(newest, restorable, is_written):
    """It is FAILED, or waits. Otherwise the state is written: its changes may be the first ones recorded."""
    anchors, pointers = {"payments": Anchor(8, 1, 2)}, [pointer(newest)]
    last = increment(9, anchors=anchors, pointers=pointers, changes=ChangesRef(1, 1, 0))
    recovery = checking(RetainedState(last, 33, lineage=Lineage(1, 1)))
    refused = events.InputsRefused(StopError("gone"), restorable)
    recovery, effect = step(recovery, refused)
    assert isinstance(effect, effects.WriteState if is_written else effects.Fail)
    if is_written:
        written = FoundIncrement(increment(9, anchors=anchors, pointers=[pointer(8)]), 40)
        recovery, _ = step(recovery, events.StateWritten(written))
        assert isinstance(step(recovery, refused)[1], effects.Fail), "once"


def test_who_was_fenced_since_holds_the_state_and_writes_nothing():
    """Also in a later attempt, whose own fence is the last one by then."""
    fenced = events.FenceDone(Lineage(1, 4), unbroken=False)
    recovery, effect = drive(events.Begin(), fenced, *EMPTY[2:], kept=KEPT)
    assert isinstance(effect, effects.Fail)
    assert isinstance(effect.error, StateDisputed)
    for event in (events.Begin(), ALONE, *EMPTY[2:]):
        recovery, effect = step(recovery, event)
    assert isinstance(effect.error, StateDisputed)
    assert recovery.kept is not None


def test_a_missing_topic_is_waited_for():
    """Never FAILED: the state is still there when the topic is."""
    recovery, effect = drive(*EMPTY[:-1], events.TopicIdsRead({"ledger-snapshots": "s"}), kept=KEPT)
    assert isinstance(effect, effects.Wait)
    assert isinstance(effect.error, IncrementsMissing)
    assert recovery.kept is not None


@pytest.mark.parametrize(
    ("kept", "warm"),
    [
        (DOUBT, Warm.DROPPED),
        (replace(DOUBT, ending=Ending(asked=True)), Warm.MERGED),
        (replace(DOUBT, ending=None), Warm.DROPPED),
    ],
)
def test_a_batch_in_doubt_is_done_when_its_commit_was_asked_for(kept, warm):
    """A commit that was not asked for cannot have happened; one without outputs cannot have been seen to fail."""
    _, effect = drive(*EMPTY, kept=kept)
    last = FoundIncrement(LAST, 33) if warm is Warm.DROPPED else FoundIncrement(DOUBTFUL, NO_OFFSET)
    assert effect == effects.Reenter(last, warm)


@pytest.mark.parametrize(("committed", "warm"), [(True, Warm.MERGED), (False, Warm.DROPPED)])
def test_an_output_tells_what_became_of_a_commit_that_was_asked_for(committed, warm):
    """It is there or it is not: then the batch is, too."""
    recovery, effect = drive(*EMPTY, kept=ASKED)
    assert effect == effects.ResolveDoubt(("balances", 0, 7))
    recovery, effect = step(recovery, events.DoubtResolved(committed))
    assert isinstance(effect, effects.Reenter)
    assert effect.warm is warm
    _, effect = begun(recovery)
    assert effect.standing.batch == (10 if committed else 9)


def test_a_doubt_that_cannot_be_resolved_holds_the_state():
    """The output is gone as well: a person must bring it back."""
    recovery, effect = drive(*EMPTY, events.DoubtResolved(None, "it is gone"), kept=ASKED)
    assert isinstance(effect, effects.Fail)
    assert isinstance(effect.error, DoubtUnresolved)
    assert "it is gone" in effect.error.message
    assert recovery.kept is not None


def test_an_orphan_in_the_new_log_was_committed():
    """The batch in doubt is there, with the id of the old topic: it is merged, and the state written."""
    found = FoundIncrement(DOUBTFUL, 2)
    claimed = (*FENCED[:1], ALONE, events.ClaimAcknowledged("c1", 5), events.ClaimSeen(0, None))
    recovery, effect = drive(*claimed, events.WindowRead(found), events.TopicIdsRead(NOW), kept=ASKED)
    assert effect == effects.Reenter(FoundIncrement(DOUBTFUL, NO_OFFSET), Warm.MERGED)
    _, effect = begun(recovery)
    assert "ends with batch 10 at offset 2" in effect.problem


def test_a_memory_that_does_not_add_up_is_no_copy():
    """Then the empty log is what it is without one."""
    recovery, effect = drive(*EMPTY, events.RetainedUnusable(), kept=KEPT)
    assert isinstance(effect, effects.Fail)
    assert isinstance(effect.error, NotInitialised)
    assert recovery.kept is None


def test_a_log_that_is_shorter_than_it_was_is_no_obstacle_to_who_has_the_state():
    """The last increment's owner claimed at an offset that the log has not reached again."""
    cut = FoundIncrement(msgspec.structs.replace(increment(5, owner_epoch=30), topic_ids=OLD), 8)
    claimed = (*CLAIMED[:1], ALONE, events.ClaimAcknowledged("c1", 10), events.ClaimSeen(0, None))
    _, effect = drive(*claimed, events.WindowRead(cut), events.TopicIdsRead(OLD), kept=KEPT)
    assert effect == effects.Reenter(FoundIncrement(LAST, 33), Warm.KEPT)


def test_a_newer_owners_state_is_loaded_and_ours_held_until_then():
    """Somebody continued from what we have: ours counts until that is loaded, and then in no later attempt."""
    theirs = FoundIncrement(msgspec.structs.replace(increment(10, owner_epoch=31), topic_ids=OLD), 33)
    claimed = (*FENCED[:1], ALONE, events.ClaimAcknowledged("c1", 40), events.ClaimSeen(0, None))
    looked = (*claimed, events.WindowRead(theirs), events.TopicIdsRead(OLD))
    recovery, effect = drive(*looked, kept=KEPT)
    assert effect == effects.ReadStarts(theirs)
    assert recovery.kept is not None
    recovery, effect = step(recovery, events.StartsRead(WHOLE))
    assert isinstance(effect, effects.Load)
    assert recovery.kept is None


def test_a_log_from_before_an_input_was_added_is_healed():
    """With any inputs of the increment that is left: the state in memory is the only copy, and it is written."""
    older = msgspec.structs.replace(LAST, batch=3, topic_ids=OLD, genesis=Genesis("cluster-1", 4, {"payments": 0}))
    search = events.ClaimAcknowledged("c1", 50), events.ClaimSeen(0, None), events.WindowRead(FoundIncrement(older, 9))
    recovery, effect = drive(events.Begin(), ALONE, *search, kept=KEPT)
    assert isinstance(effect, effects.ReadTopicIds)
    recovery, effect = step(recovery, events.TopicIdsRead(NOW))
    assert effect == effects.Reenter(FoundIncrement(LAST, 33), Warm.KEPT)
    assert begun(recovery)[1].standing.genesis == LAST.genesis
    _, effect = drive(events.Begin(), ALONE, *search)
    assert isinstance(effect, effects.Fail)

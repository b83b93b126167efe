"""Tests of what follows the end of an ownership: a table of every outcome of every stage, and the rules beside it."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay.app.ranges import InputRange
from snapreplay.errors import DamagedError, StopError
from snapreplay.service.core.batch_failures import BatchFailures, Events, HandlerFailed, RefusedAgain
from snapreplay.service.core.custody import DoubtUnresolved, IncrementsMissing, IncrementsReplaced, StateDisputed
from snapreplay.service.core.kafka_errors import (
    ClockRefused,
    CommitInDoubt,
    Fenced,
    NotAuthorized,
    RefusedRecord,
    RefusedTopic,
    Unreachable,
)
from snapreplay.service.core.owners import NotAssigned, Superseded, TakenAgain
from snapreplay.service.core.ownership import (
    ASK_AGAIN_SECONDS,
    AskForLoss,
    AskForOwner,
    BackOff,
    Done,
    Ended,
    FailPartition,
    Interrupted,
    Lose,
    LossAnswered,
    Next,
    Outcome,
    Own,
    OwnerAnswered,
    Ownership,
    OwnerUnknown,
    Retried,
    Stage,
    StandAside,
    StandBack,
    step,
)
from snapreplay.service.core.refusals import DuplicateInstance, LogCut, NotInitialised
from tests.support.courses import NAMESAKE, THEIRS, US
from tests.support.entries import increment

BEGINNING = Ownership(US, 1000, 60_000, BatchFailures(US.partition))
DOUBT = CommitInDoubt("no answer")
GONE = RefusedTopic("gone", topic="out", error="unknown")
NO_BROKER = Unreachable("no broker")
REFUSED = RefusedRecord("too large")
ASKING = {"cause": DOUBT, "failed": increment(7)}

# (stage, what is known there, what happens, next). FAILED waits for a person.
CASES: list[tuple[Stage, dict[str, Any], Outcome, type[Next]]] = [
    (Stage.OWNING, {}, Ended(None), Own),
    (Stage.OWNING, {}, Ended(Superseded(THEIRS, 0)), StandBack),
    (Stage.OWNING, {}, Ended(DuplicateInstance("another")), StandAside),
    (Stage.OWNING, {}, Ended(IncrementsMissing("gone")), Lose),
    (Stage.OWNING, {}, Ended(IncrementsReplaced("another")), Lose),
    (Stage.OWNING, {}, Ended(Fenced("newer epoch")), AskForLoss),
    (Stage.OWNING, {}, Ended(DOUBT), AskForLoss),
    (Stage.OWNING, {}, Ended(NotAuthorized("no ACL")), AskForLoss),
    (Stage.OWNING, {}, Ended(ClockRefused("a day ahead")), AskForLoss),
    (Stage.OWNING, {}, Ended(GONE), AskForLoss),
    (Stage.OWNING, {}, Ended(REFUSED), BackOff),
    (Stage.OWNING, {}, Ended(NotAssigned("the group gives it to another")), BackOff),
    (Stage.OWNING, {}, Ended(NO_BROKER), BackOff),
    (Stage.OWNING, {}, Ended(StopError("a person must act")), FailPartition),
    (Stage.OWNING, {}, Ended(ZeroDivisionError()), FailPartition),
    (Stage.LOST, {}, Done(), Own),
    (Stage.ASKING_FOR_LOSS, {"cause": DOUBT}, LossAnswered(DamagedError("gone")), Lose),
    (Stage.ASKING_FOR_LOSS, {"cause": DOUBT}, LossAnswered(None), AskForOwner),
    (Stage.ASKING_FOR_LOSS, {"cause": REFUSED, "failed": increment(7)}, LossAnswered(None), BackOff),
    (Stage.ASKING_FOR_LOSS, {"cause": GONE}, LossAnswered(None), BackOff),
    (Stage.ASKING_FOR_OWNER, ASKING, OwnerAnswered(THEIRS), StandBack),
    (Stage.ASKING_FOR_OWNER, ASKING, OwnerAnswered(NAMESAKE), StandAside),
    (Stage.ASKING_FOR_OWNER, ASKING, OwnerAnswered(None), BackOff),
    (Stage.ASKING_FOR_OWNER, ASKING, OwnerUnknown(NO_BROKER), BackOff),
    (Stage.ASKING_AGAIN, ASKING, OwnerAnswered(THEIRS), StandBack),
    (Stage.ASKING_AGAIN, ASKING, OwnerAnswered(NAMESAKE), StandAside),
    (Stage.ASKING_AGAIN, ASKING, OwnerAnswered(None), Own),
    (Stage.ASKING_AGAIN, ASKING, OwnerUnknown(NO_BROKER), BackOff),
    (Stage.BACKING_OFF, {}, Interrupted(), Own),
    (Stage.BACKING_OFF, {}, Done(), Own),
    (Stage.BACKING_OFF_IN_DOUBT, {"cause": DOUBT}, Done(), AskForOwner),
    (Stage.BACKING_OFF_IN_DOUBT, {}, Interrupted(), Own),
    (Stage.STANDING_BACK, {}, Interrupted(), Own),
    (Stage.STANDING_BACK, {}, Done(), Own),
    (Stage.ASIDE, {}, Interrupted(), Own),
    (Stage.ASIDE, {}, Done(), Own),
    (Stage.ASIDE, {"refused": DuplicateInstance("another")}, Done(), Own),
    (Stage.FAILED, {}, Retried(None), Own),
    (Stage.FAILED, {}, Retried(StopError("still")), Own),
    (Stage.FAILED, {}, Done(), Own),
]


def batch(count):
    """An increment of `count` records."""
    ranges = [InputRange("in", 0, count, count)]
    return msgspec.structs.replace(increment(7), ranges=ranges, positions={"in": count})


def after(*outcomes, ownership=BEGINNING):
    """The ownership after these, and what is next."""
    following = None
    for outcome in outcomes:
        ownership, following = step(ownership, outcome)
    return ownership, following


def test_what_follows_every_outcome_of_every_stage():
    """In every case the partition has an owner again, or a person is asked."""
    assert {stage for stage, *_ in CASES} == set(Stage)
    for stage, known, outcome, expected in CASES:
        _, following = step(replace(BEGINNING, stage=stage, **known), outcome)
        assert type(following) is expected, (stage, outcome)


def test_a_doubt_is_asked_about_before_anybody_is_fenced_and_once_more_after_the_pause():
    """A fence comes some milliseconds before its claim."""
    ownership, following = after(Ended(DOUBT))
    order = [type(following)]
    for outcome in (LossAnswered(None), OwnerAnswered(None), Done(), OwnerAnswered(None)):
        ownership, following = step(ownership, outcome)
        order.append(type(following))
    assert order == [AskForLoss, AskForOwner, BackOff, AskForOwner, Own]


@pytest.mark.parametrize("error", [DOUBT, NotAuthorized("no ACL")])
def test_only_a_doubt_cuts_the_batch_and_not_the_first_one(error):
    """Once is an accident; that an ACL is missing says nothing of the batch."""
    ended = Ended(error, failed=batch(16))
    asked = LossAnswered(None), OwnerAnswered(None)
    once, _ = after(ended, *asked)
    assert once.failures.bisection.limit_at({"in": 0}) is None
    twice, _ = after(ended, *asked, ownership=once)
    assert twice.failures.bisection.limit_at({"in": 0}) == (4 if error is DOUBT else None)


def test_a_batch_that_the_broker_refuses_is_cut_at_once_and_fails_when_nothing_is_left_to_cut():
    """The record to blame is dead-lettered, or stops the partition; its dead letter may be refused, too."""
    refused = RefusedRecord("too large", topic="out", error="too large")
    ownership, following = after(Ended(refused, failed=batch(4)))
    assert isinstance(following, BackOff)
    assert ownership.failures.bisection.limit_at({"in": 0}) == 1
    alone = Ended(refused, failed=batch(1))
    ownership, _ = after(alone, ownership=ownership)
    assert ownership.failures.record is not None
    ownership, following = after(alone, ownership=ownership)
    assert isinstance(following, FailPartition)
    assert isinstance(following.error, RefusedAgain)
    ownership, _ = after(Retried(None), ownership=ownership)
    assert ownership.failures == BatchFailures(BEGINNING.expected.partition)


def test_what_was_due_in_a_refused_batch_is_to_blame_as_its_records_are():
    """A batch of timers alone is cut down to the timer that the broker does not take."""
    refused, of_timers = RefusedRecord("too large", topic="out", error="too large"), batch(0)
    ended = Ended(refused, failed=of_timers, failed_events=Events(16, "ring of k16 at 5"))
    ownership, _ = after(ended)
    assert ownership.failures.bisection.limit_at({"in": 0}, of_timers.batch) == 4
    alone = Ended(refused, failed=of_timers, failed_events=Events(1, "ring of k3 at 5"))
    ownership, _ = after(alone, ownership=ownership)
    assert ownership.failures.record is not None
    assert ownership.failures.record.timer_id == "ring of k3 at 5"


def test_pauses_double_until_a_batch_is_committed():
    """From 1 s to at most 60 s."""
    ownership, seconds = BEGINNING, []
    for newest in (5, 5, 5, 6, *[6] * 9):
        ownership, following = after(Ended(NO_BROKER, batch=newest), ownership=ownership)
        assert isinstance(following, BackOff)
        seconds.append(following.seconds)
        ownership, _ = after(Done(), ownership=ownership)
    assert seconds[:6] == [1, 2, 4, 1, 2, 4]
    assert max(seconds) == 60
    _, following = after(Ended(NotAssigned("not ours")), ownership=ownership)
    assert following == BackOff(ASK_AGAIN_SECONDS, following.error)


def test_who_is_interrupted_asks_no_more_questions():
    """A stop, or a refusal, that came with the pause."""
    asked = Ended(DOUBT), LossAnswered(None), OwnerAnswered(None)
    assert isinstance(after(*asked, Interrupted())[1], Own)


def test_a_log_that_does_not_answer_is_asked_again_by_the_next_recovery():
    """No owner is fenced for it before the pause."""
    ownership, following = after(Ended(DOUBT), LossAnswered(None), OwnerUnknown(NO_BROKER))
    assert (type(following), following.error) == (BackOff, NO_BROKER)
    assert isinstance(after(Done(), ownership=ownership)[1], Own)


def test_taken_again_within_a_minute_is_reported_as_such():
    """Once is a move; a row names process and host. After a quiet minute it is a move again."""
    told = []
    ownership = BEGINNING
    for at in (100.0, 150.0, 200.0, 260.0):
        ownership, following = after(Ended(Superseded(THEIRS, 0), at), ownership=ownership)
        assert isinstance(following, StandBack)
        told.append((type(following.error), following.times))
    assert told == [(Superseded, 1), (TakenAgain, 2), (TakenAgain, 3), (Superseded, 1)]
    _, following = after(OwnerAnswered(THEIRS, 261.0), ownership=replace(ownership, cause=DOUBT))
    assert "process 2 on host host (instance id 'two')" in following.error.message
    assert "2 times in a row" in following.error.message
    assert following.error.hint


def test_an_older_process_of_our_name_is_an_owner_like_any_other():
    """The younger one stays: by start and not by claim, or each would step down for the other."""
    asking = replace(BEGINNING, stage=Stage.ASKING_FOR_OWNER, cause=DOUBT)
    older = msgspec.structs.replace(NAMESAKE, started_at_ms=1)
    assert isinstance(after(OwnerAnswered(older), ownership=asking)[1], StandBack)
    ownership, following = after(OwnerAnswered(NAMESAKE), ownership=asking)
    assert isinstance(following, StandAside)
    assert following.has_claimed
    assert ownership.refused is following.error


def test_who_stood_aside_forgets_it_when_the_group_gives_the_partition_again():
    """What was refused before counts until then, and an assignment from before does not."""
    error = DuplicateInstance("another")
    ownership, following = after(Ended(error))
    assert following == StandAside(error, is_new=True, has_claimed=False)
    again, following = after(Ended(error), ownership=ownership)
    assert following == StandAside(error, is_new=False, has_claimed=False)
    assert after(Done(), ownership=again)[0].refused is None
    refused = replace(again, refused=StopError("partitions were added"))
    assert after(Done(), ownership=refused)[0].refused is refused.refused, "that is no name's fault"


def test_a_refusal_does_not_interrupt_what_is_held():
    """Else each next attempt to write it ended before it began."""
    holding = replace(BEGINNING, is_holding=True)
    ownership, following = after(Ended(DuplicateInstance("another")), ownership=holding)
    assert not following.is_new
    assert ownership.refused is None


def test_a_failure_says_what_has_become_of_the_state():
    """Whether the log holds it, whether another process may still write it, whether anybody knows what it is."""

    def failed(error, ownership=BEGINNING):
        _, following = after(Ended(error), ownership=ownership)
        assert isinstance(following, FailPartition)
        return following.is_unproven, following.may_be_written, following.is_defect

    cut = LogCut("cut", hint="", increment_offset=7)
    assert failed(StopError("no")) == (False, False, False)
    assert failed(StateDisputed("two states")) == (True, True, False)
    assert failed(DoubtUnresolved("gone")) == (True, False, False)
    assert failed(cut) == failed(NotInitialised("empty")) == (False, True, False)
    assert failed(ZeroDivisionError()) == (False, False, True)


def test_a_refusal_that_all_partitions_heard_is_not_hinted_at_again():
    """Its hint is in the log already."""
    error = StopError("partitions were added")
    _, following = after(Ended(error), ownership=replace(BEGINNING, refused=error))
    assert following.hint_is_logged
    assert not after(Ended(StopError("another")))[1].hint_is_logged


def test_a_retry_begins_again():
    """A limit may have been raised, a finding accepted. Refused again, it says so in the next ownership."""
    ownership, _ = after(Ended(NO_BROKER, batch=3), Done())
    assert ownership.back_off.times == 1
    fresh, following = after(Ended(HandlerFailed("no")), Retried(None), ownership=ownership)
    assert (fresh.back_off.times, following) == (0, Own())
    refusal = StopError("a topic is gone")
    assert after(Retried(refusal), ownership=ownership)[0].refused is refusal

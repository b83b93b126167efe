"""What follows when an ownership ends, as one pure function: `step(ownership, outcome) -> (ownership, next)`. An
ownership is one fence, one recovery and the processing after it. ARCHITECTURE.md has the table ("What ends an
ownership")."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from snapreplay.errors import AccessError, Reaction, ReleaseError, SnapreplayError
from snapreplay.service.core.batch_failures import NO_EVENTS, BatchFailures, Events
from snapreplay.service.core.custody import DoubtUnresolved, IncrementsMissing, IncrementsReplaced, StateDisputed
from snapreplay.service.core.kafka_errors import ClockRefused, CommitInDoubt, Fenced, RefusedRecord, RefusedTopic
from snapreplay.service.core.owners import NotAssigned, RetryBackOff, Superseded, TakenAway
from snapreplay.service.core.refusals import LEADS_NOWHERE, DuplicateInstance, Expected, duplicate_instance
from snapreplay.snapshots.format.records import Claim, Increment


class Ended(Struct, frozen=True):
    """An ownership ended; `error` None: it was stopped. `failed`: the batch that was not answered OK. `at`: loop time,
    seconds."""

    error: BaseException | None
    at: float = 0.0
    owner_epoch: int | None = None
    batch: int | None = None
    failed: Increment | None = None
    failed_events: Events = NO_EVENTS


class LossAnswered(Struct, frozen=True):
    """Why nothing can be committed to the chain any more; None: nothing has changed, or there is no answer."""

    loss: SnapreplayError | None


class OwnerAnswered(Struct, frozen=True):
    """The newest claim after ours; None: there is none. `at` is the loop's time in seconds."""

    newer: Claim | None
    at: float = 0.0


class OwnerUnknown(Struct, frozen=True):
    """The log could not be asked."""

    error: SnapreplayError


class Done(Struct, frozen=True):
    """The requested action finished, or its wait is over."""


class Interrupted(Struct, frozen=True):
    """The wait was ended by a stop or a refusal."""


class Retried(Struct, frozen=True):
    """An operator asked for it. `refused`: why the cluster, as it is now, is still refused."""

    refused: SnapreplayError | None


Outcome = Ended | LossAnswered | OwnerAnswered | OwnerUnknown | Done | Interrupted | Retried


class Own(Struct, frozen=True):
    """Fence, recover and process, unless stopped or refused."""


class AskForLoss(Struct, frozen=True):
    """Ask whether the increments topic is still the topic that we wrote to."""


class AskForOwner(Struct, frozen=True):
    """Ask the log for a claim after ours."""


class Lose(Struct, frozen=True):
    """The increments topic was deleted or replaced, and the state in memory is the only copy."""

    error: SnapreplayError


class BackOff(Struct, frozen=True):
    """Back off and show why."""

    seconds: float
    error: SnapreplayError


class StandBack(Struct, frozen=True):
    """Wait until the group gives us the partition. It was taken from this process `times` times in a row."""

    newer: Claim
    error: ReleaseError
    times: int


class StandAside(Struct, frozen=True):
    """Leave the group and wait until an assignment gives us the partition. `is_new`: an assignment from before does not
    count."""

    error: DuplicateInstance
    is_new: bool
    has_claimed: bool


class FailPartition(Struct, frozen=True):
    """Wait until an operator acts.

    Attributes:
        hint_is_logged: the hint was already logged, once for all partitions.
        is_unproven: the log does not hold the state in memory.
        is_defect: it is not known what the state in memory is.
        may_be_written: another process may still write what this one could not continue from.
    """

    error: BaseException
    hint_is_logged: bool
    is_unproven: bool
    is_defect: bool
    may_be_written: bool


Next = Own | AskForLoss | AskForOwner | Lose | BackOff | StandBack | StandAside | FailPartition


ASK_AGAIN_SECONDS = 1.0  # whether the group gives us the partition by now
AGAIN = (Reaction.RETRY, Reaction.RELEASE)


class Stage(StrEnum):
    """The event that is being waited for."""

    OWNING = "an ownership is under way"
    LOST = "the loss of the increments topic is reported"
    ASKING_FOR_LOSS = "is the increments topic still the topic that was written to?"
    ASKING_FOR_OWNER = "has anybody claimed the partition since?"
    BACKING_OFF = "back-off, then the next ownership"
    BACKING_OFF_IN_DOUBT = "back-off, then the log is asked again"
    ASKING_AGAIN = "has anybody claimed the partition meanwhile?"
    STANDING_BACK = "another process has claimed the partition"
    ASIDE = "another process uses the same instance id"
    FAILED = "an operator must act"


class Ownership(Struct, frozen=True):
    """What is known of a partition from one ownership to the next.

    Attributes:
        is_holding: stopped, but the state is nowhere else.
        refused: why the partition must not process.
        cause: the error because of which something is being asked.
    """

    expected: Expected
    backoff_ms: int
    backoff_max_ms: int
    failures: BatchFailures
    stage: Stage = Stage.OWNING
    is_holding: bool = False
    refused: SnapreplayError | None = None
    cause: SnapreplayError | None = None
    owner_epoch: int | None = None
    batch: int | None = None
    failed: Increment | None = None
    failed_events: Events = NO_EVENTS
    back_off: RetryBackOff = field(default_factory=RetryBackOff)
    takeovers: TakenAway = field(default_factory=TakenAway)


def step(ownership: Ownership, outcome: Outcome) -> tuple[Ownership, Next]:
    """Decide what follows: same input, same output."""
    match outcome:
        case Ended():
            return _ended(ownership, outcome)
        case LossAnswered(loss):
            return _loss_answered(ownership, loss)
        case OwnerAnswered(newer, at):
            return _owner_answered(ownership, newer, at)
        case OwnerUnknown(error):
            return _react(ownership, error)
        case Done():
            return _done(ownership)
        case Interrupted():
            return _own(ownership)
        case Retried(refused):
            return _retried(ownership, refused)
        case _:
            assert_never(outcome)


def _ended(before: Ownership, ended: Ended) -> tuple[Ownership, Next]:
    ownership = replace(
        before, owner_epoch=ended.owner_epoch, batch=ended.batch, failed=ended.failed, failed_events=ended.failed_events
    )
    match ended.error:
        case None:
            return _own(ownership)
        case Superseded() as error:
            return _stand_back(ownership, error, ended.at)
        case DuplicateInstance() as error:
            return _stand_aside(ownership, error, has_claimed=False)
        case IncrementsMissing() | IncrementsReplaced() as error:
            return _lost(ownership, error)
        case Fenced() | CommitInDoubt() | AccessError() | ClockRefused() | RefusedTopic() as error:
            return _ask(ownership, Stage.ASKING_FOR_LOSS, error), AskForLoss()
        case RefusedRecord() as error:
            return _refused(ownership, error)
        case error:
            return _react(ownership, error)


def _own(ownership: Ownership) -> tuple[Ownership, Next]:
    return replace(ownership, stage=Stage.OWNING, cause=None), Own()


def _lost(ownership: Ownership, error: SnapreplayError) -> tuple[Ownership, Next]:
    return replace(ownership, stage=Stage.LOST), Lose(error)


def _ask(ownership: Ownership, stage: Stage, cause: SnapreplayError) -> Ownership:
    return replace(ownership, stage=stage, cause=cause)


def _loss_answered(ownership: Ownership, loss: SnapreplayError | None) -> tuple[Ownership, Next]:
    if loss is not None:
        return _lost(ownership, loss)
    cause = _cause(ownership)
    if isinstance(cause, RefusedRecord):
        return _refused(ownership, cause)
    return _ask(ownership, Stage.ASKING_FOR_OWNER, cause), AskForOwner()


def _refused(ownership: Ownership, error: RefusedRecord) -> tuple[Ownership, Next]:
    """Cut a refused batch down to the record that the broker does not take: a deterministic failure is not doubt."""
    if ownership.failed is None:
        return _react(ownership, error)
    failures, final = ownership.failures.refused(ownership.failed, error, ownership.failed_events)
    return _react(replace(ownership, failures=failures), final or error)


def _owner_answered(ownership: Ownership, newer: Claim | None, at: float) -> tuple[Ownership, Next]:
    """Judge the answer. The log is asked before anybody is fenced, and again after the pause: a fence may be a timeout,
    a doubt may be a fence, and a fence comes some milliseconds before its claim."""
    if newer is not None:
        duplicate = duplicate_instance(ownership.expected, newer)
        if duplicate is not None:
            return _stand_aside(ownership, duplicate, has_claimed=True)
        return _stand_back(ownership, Superseded(newer, ownership.expected.partition), at)
    if ownership.stage is Stage.ASKING_AGAIN:
        return _own(ownership)
    cause = _cause(ownership)
    if ownership.failed is not None and isinstance(cause, Fenced | CommitInDoubt):
        failures = ownership.failures.doubted(ownership.failed, ownership.failed_events)
        ownership = replace(ownership, failures=failures)
    reacted, following = _react(ownership, cause)
    return replace(reacted, stage=Stage.BACKING_OFF_IN_DOUBT), following


def _stand_back(ownership: Ownership, error: Superseded, at: float) -> tuple[Ownership, Next]:
    """Stand back: we fence the newer owner in return only when the group's coordinator gives us the partition."""
    takeovers, reported = ownership.takeovers.taken(error, ownership.expected.partition, at)
    standing = replace(ownership, stage=Stage.STANDING_BACK, takeovers=takeovers)
    return standing, StandBack(error.newer, reported, takeovers.times)


def _stand_aside(ownership: Ownership, error: DuplicateInstance, *, has_claimed: bool) -> tuple[Ownership, Next]:
    """Leave the group until the other process has ended. If we hold a state, we keep trying to write it."""
    is_new = ownership.refused is None and not ownership.is_holding
    refused = error if is_new else ownership.refused
    aside = replace(ownership, stage=Stage.ASIDE, refused=refused)
    return aside, StandAside(error, is_new, has_claimed)


def _react(ownership: Ownership, error: BaseException) -> tuple[Ownership, Next]:
    if not isinstance(error, SnapreplayError) or error.reaction not in AGAIN:
        return _failed(ownership, error)
    if isinstance(error, NotAssigned):
        return replace(ownership, stage=Stage.BACKING_OFF), BackOff(ASK_AGAIN_SECONDS, error)
    back_off = ownership.back_off.next(ownership.batch or 0)
    seconds = back_off.seconds(ownership.backoff_ms, ownership.backoff_max_ms)
    return replace(ownership, stage=Stage.BACKING_OFF, back_off=back_off), BackOff(seconds, error)


def _failed(ownership: Ownership, error: BaseException) -> tuple[Ownership, Next]:
    return replace(ownership, stage=Stage.FAILED), FailPartition(
        error,
        hint_is_logged=error is ownership.refused,
        is_unproven=isinstance(error, StateDisputed | DoubtUnresolved),
        is_defect=is_defect(error),
        may_be_written=isinstance(error, (*LEADS_NOWHERE, StateDisputed)),
    )


def is_defect(error: BaseException | None) -> bool:
    """Say whether it is outside the error tree."""
    return error is not None and not isinstance(error, SnapreplayError)


def _done(ownership: Ownership) -> tuple[Ownership, Next]:
    match ownership.stage:
        case Stage.BACKING_OFF_IN_DOUBT:
            return replace(ownership, stage=Stage.ASKING_AGAIN), AskForOwner()
        case Stage.ASIDE if isinstance(ownership.refused, DuplicateInstance):
            return _own(replace(ownership, refused=None))
        case _:
            return _own(ownership)


def _retried(ownership: Ownership, refused: SnapreplayError | None) -> tuple[Ownership, Next]:
    """Forget what stopped the partition before: a limit may have been raised, a finding accepted."""
    if refused is not None:
        return _own(replace(ownership, refused=refused))
    fresh = replace(
        ownership, refused=None, failures=BatchFailures(ownership.expected.partition), back_off=RetryBackOff()
    )
    return _own(fresh)


def _cause(ownership: Ownership) -> SnapreplayError:
    if ownership.cause is None:
        raise AssertionError("an answer arrived before its question")
    return ownership.cause

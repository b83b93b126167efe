"""The table of what follows the end of an ownership, drawn from the machine that decides it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from snapreplay.errors import DamagedError, RecordId, SnapreplayError, StopError
from snapreplay.service.core import kafka_errors as kafka
from snapreplay.service.core import ownership as machine
from snapreplay.service.core.batch_failures import BatchFailures, HalfApplied, HandlerFailed
from snapreplay.service.core.custody import IncrementsMissing, IncrementsReplaced
from snapreplay.service.core.owners import NotAssigned, Superseded
from snapreplay.service.core.ownership import Outcome, Ownership, Stage
from snapreplay.service.core.refusals import DuplicateInstance
from tests.docs.recoveries import NAMESAKE, THEIRS, US

__all__ = ["BEGINNING", "NAMESAKE", "THEIRS", "cases", "drawing"]

BEGINNING = Ownership(US, 1000, 60_000, BatchFailures(0))
IN_DOUBT = kafka.CommitInDoubt("no answer")
GONE = kafka.RefusedTopic("gone", topic="out", error="unknown")

ENDS: dict[str, Exception | None] = {
    "stopped": None,
    "`Superseded`: the log shows a newer claim": Superseded(THEIRS, 0),
    "`DuplicateInstance`: of our own name": DuplicateInstance("another"),
    "`IncrementsMissing`": IncrementsMissing("gone"),
    "`IncrementsReplaced`": IncrementsReplaced("another"),
    "`Fenced`": kafka.Fenced("newer epoch"),
    "`CommitInDoubt`": IN_DOUBT,
    "`NotAuthorized`, `NotAuthenticated`": kafka.NotAuthorized("no ACL"),
    "`ClockRefused`": kafka.ClockRefused("a day ahead"),
    "`RefusedTopic`": GONE,
    "`RefusedRecord`": kafka.RefusedRecord("too large"),
    "`HalfApplied`: a state that cannot roll back": HalfApplied(
        HandlerFailed("no"), RecordId("in", 0, 7)
    ),
    "`NotAssigned`": NotAssigned("the group gives it to another"),
    "any other `RetryableError`": kafka.Unreachable("no broker"),
    "`RebuildError`, `StopError`, `RecordError`": StopError("a person must act"),
    "a defect": ZeroDivisionError(),
}
OWNERS: dict[str, Outcome] = {
    "a process of another name": machine.OwnerAnswered(THEIRS),
    "a process of our name": machine.OwnerAnswered(NAMESAKE),
    "nobody": machine.OwnerAnswered(None),
    "no answer": machine.OwnerUnknown(kafka.Unreachable("no broker")),
}


def cases() -> Iterator[tuple[Stage, str, Outcome, SnapreplayError | None]]:
    """Every outcome that each stage can have, and the cause of its question."""
    for words, error in ENDS.items():
        yield Stage.OWNING, words, machine.Ended(error), None
    yield Stage.ASKING_FOR_LOSS, "no", machine.LossAnswered(DamagedError("gone")), IN_DOUBT
    yield Stage.ASKING_FOR_LOSS, "yes, or no answer", machine.LossAnswered(None), IN_DOUBT
    yield Stage.ASKING_FOR_LOSS, "yes; an output's topic is gone", machine.LossAnswered(None), GONE
    for stage in (Stage.ASKING_FOR_OWNER, Stage.ASKING_AGAIN):
        for words, answer in OWNERS.items():
            yield stage, words, answer, IN_DOUBT
    yield Stage.PAUSED_IN_DOUBT, "over", machine.Done(), IN_DOUBT
    for stage in (Stage.PAUSED, Stage.PAUSED_IN_DOUBT, Stage.STANDING_BACK, Stage.ASIDE):
        yield stage, "stopped or refused", machine.Interrupted(), None
    for stage in (Stage.LOST, Stage.PAUSED, Stage.STANDING_BACK, Stage.ASIDE):
        yield stage, "over", machine.Done(), None
    yield Stage.FAILED, "`retry`", machine.Retried(None), None
    yield Stage.FAILED, "`retry`; refused again", machine.Retried(StopError("still")), None
    yield Stage.FAILED, "another process has written the log", machine.Done(), None


def drawing() -> str:
    """As a table, by stage."""
    order = list(Stage)
    rows = [("while", "what happens", "next"), ("---", "---", "---")]
    for stage, words, outcome, cause in sorted(cases(), key=lambda case: order.index(case[0])):
        _, following = machine.step(replace(BEGINNING, stage=stage, cause=cause), outcome)
        rows.append((f"{stage.name}: {stage}", words, type(following).__name__))
    shown = [("" if a[0] == b[0] else b[0], *b[1:]) for a, b in pairwise(rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], *shown)) + "\n"

"""The table of what follows the end of an ownership, drawn from the machine that decides it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from snapreplay.errors import DamagedError, RecordId, StopError
from snapreplay.service.core import kafka_errors as kafka
from snapreplay.service.core import ownership as machine
from snapreplay.service.core.batch_failures import BatchFailures, HalfApplied, HandlerFailed
from snapreplay.service.core.custody import IncrementsMissing, IncrementsReplaced
from snapreplay.service.core.owners import NotAssigned, Superseded
from snapreplay.service.core.ownership import Outcome, Ownership, Stage
from snapreplay.service.core.refusals import DuplicateInstance
from tests.docs.recoveries import NAMESAKE, THEIRS, US
from tests.support.entries import increment

BEGINNING = Ownership(US, 1000, 60_000, BatchFailures(US.partition))
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
    "`HalfApplied`: a state that cannot roll back": HalfApplied(HandlerFailed("no"), RecordId("in", 0, 7)),
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


def cases() -> Iterator[tuple[Ownership, str, Outcome]]:
    """Every outcome that each stage can have, and what is known before it."""
    for words, error in ENDS.items():
        yield at(Stage.OWNING), words, machine.Ended(error)
    asking = at(Stage.ASKING_FOR_LOSS, cause=IN_DOUBT)
    yield asking, "no", machine.LossAnswered(DamagedError("gone"))
    yield asking, "yes, or no answer", machine.LossAnswered(None)
    refused = replace(asking, cause=kafka.RefusedRecord("too large"), failed=increment(7))
    yield refused, "yes; a record of the batch was refused", machine.LossAnswered(None)
    gone = replace(asking, cause=GONE)
    yield gone, "yes; an output's topic is gone", machine.LossAnswered(None)
    for stage in (Stage.ASKING_FOR_OWNER, Stage.ASKING_AGAIN):
        for words, answer in OWNERS.items():
            yield at(stage, cause=IN_DOUBT, failed=increment(7)), words, answer
    yield at(Stage.BACKING_OFF_IN_DOUBT, cause=IN_DOUBT), "over", machine.Done()
    for stage in (Stage.BACKING_OFF, Stage.BACKING_OFF_IN_DOUBT, Stage.STANDING_BACK, Stage.ASIDE):
        yield at(stage), "stopped or refused", machine.Interrupted()
    for stage in (Stage.LOST, Stage.BACKING_OFF, Stage.STANDING_BACK, Stage.ASIDE):
        yield at(stage), "over", machine.Done()
    stepped_down = at(Stage.ASIDE, refused=DuplicateInstance("another"))
    yield stepped_down, "over: the other process of our name has gone", machine.Done()
    yield at(Stage.FAILED), "`retry`", machine.Retried(None)
    yield at(Stage.FAILED), "`retry`; refused again", machine.Retried(StopError("still"))
    yield at(Stage.FAILED), "another process has written the log", machine.Done()


def at(stage: Stage, **known: Any) -> Ownership:
    return replace(BEGINNING, stage=stage, **known)


def drawing() -> str:
    """Draw a table, by stage."""
    order = list(Stage)
    rows = [("while", "what happens", "next"), ("---", "---", "---")]
    for before, words, outcome in sorted(cases(), key=lambda case: order.index(case[0].stage)):
        _, following = machine.step(before, outcome)
        rows.append((f"{before.stage.name}: {before.stage}", words, type(following).__name__))
    shown = [("" if a[0] == b[0] else b[0], *b[1:]) for a, b in pairwise(rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], *shown)) + "\n"

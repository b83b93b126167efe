"""Tests of what was asked for and what became of it."""

from typing import Any

import pytest

from snapreplay.service.control import operation_registry as module
from snapreplay.service.control.operation_registry import OperationRegistry
from snapreplay.service.control.operations import (
    AdoptSnapshot,
    Busy,
    CreateSavepoint,
    DrainProcess,
    DrillPartition,
    NotCancellable,
    OperationState,
    PausePartition,
    ResumePartition,
    RetryPartition,
    TriggerSnapshot,
)


def found(operations, made) -> Any:
    return operations.get(made.id)


def states(operation):
    return [part.state for part in operation.parts]


def test_an_operation_ends_when_its_last_part_does():
    """Skipped counts as done; the end has a time."""
    operations = OperationRegistry()
    made = operations.create(TriggerSnapshot(), [0, 2])
    assert (made.state, states(made), made.finished_at) == ("running", ["pending", "pending"], None)
    operations.report(made.id, 0, OperationState.SUCCEEDED, "s1", "")
    assert found(operations, made).state == "running"
    operations.report(made.id, 2, OperationState.SKIPPED, None, "nothing new")
    done = found(operations, made)
    assert (done.state, states(done)) == ("succeeded", ["succeeded", "skipped"])
    assert done.finished_at >= done.created_at
    assert done.parts[0].snapshot_id == "s1"
    assert done.parts[1].detail == "nothing new"


def test_one_failed_part_fails_the_operation():
    """Though the others succeeded."""
    operations = OperationRegistry()
    made = operations.create(TriggerSnapshot(), [0, 1])
    operations.report(made.id, 1, OperationState.FAILED, None, "no broker")
    operations.report(made.id, 0, OperationState.SUCCEEDED, "s1", "")
    assert found(operations, made).state == "failed"


def test_a_part_that_has_ended_is_never_changed():
    """The first answer counts: a late "failed" of a closing partition does not undo a success."""
    operations = OperationRegistry()
    made = operations.create(TriggerSnapshot(), [0])
    operations.report(made.id, 0, OperationState.SUCCEEDED, "s1", "")
    operations.report(made.id, 0, OperationState.FAILED, None, "released")
    assert states(found(operations, made)) == ["succeeded"]


def test_a_busy_partition_is_refused_until_its_part_has_ended():
    """And nothing of the refused operation is started."""
    operations = OperationRegistry()
    first = operations.create(TriggerSnapshot(), [0, 1])
    with pytest.raises(Busy) as refused:
        operations.create(TriggerSnapshot(), [1, 2])
    assert (refused.value.partition, refused.value.operation_id) == (1, first.id)
    assert len(operations.all()) == 1
    operations.report(first.id, 1, OperationState.SUCCEEDED, "s1", "")
    assert operations.create(TriggerSnapshot(), [1, 2]).state == "running"


def test_only_the_last_ones_are_kept_newest_first(monkeypatch):
    """A caller that triggers for ever does not fill the memory; news of what was evicted is ignored. Where there was
    nothing to do it has succeeded."""
    monkeypatch.setattr(module, "OPERATIONS_MAX", 3)
    operations = OperationRegistry()
    made = [operations.create(TriggerSnapshot(reason=str(n)), []) for n in range(5)]
    assert [each.reason for each in operations.all()] == ["4", "3", "2"]
    operations.report(made[0].id, 0, OperationState.SUCCEEDED, "s1", "")
    assert operations.get(made[0].id) is None
    assert {each.state for each in operations.all()} == {"succeeded"}


def test_what_has_not_begun_is_cancelled_and_cannot_begin_any_more():
    """The parts that have begun continue. The begin of a cancelled one says so; its end changes nothing. Another
    operation of that partition may follow at once."""
    operations = OperationRegistry()
    made = operations.create(TriggerSnapshot(), [0, 1, 2])
    assert not operations.report(made.id, 0, OperationState.RUNNING, None, "")
    operations.report(made.id, 1, OperationState.SUCCEEDED, "s1", "")
    after, cancelled = operations.cancel(made.id, "cancelled by ada")
    assert (cancelled, after.state, states(after)) == ([2], "running", ["running", "succeeded", "cancelled"])
    assert after.parts[2].detail == "cancelled by ada"
    assert operations.report(made.id, 2, OperationState.RUNNING, None, "")
    assert operations.report(made.id, 2, OperationState.SUCCEEDED, "s2", "")
    operations.report(made.id, 0, OperationState.SUCCEEDED, "s1", "")
    ended = found(operations, made)
    assert (ended.state, states(ended)) == ("cancelled", ["succeeded", "succeeded", "cancelled"])
    assert operations.cancel(made.id, "") == (ended, []), "it stays so"
    assert operations.create(TriggerSnapshot(), [2]).state == "running"


@pytest.mark.parametrize(
    ("command", "state", "why"),
    [
        (TriggerSnapshot(), OperationState.RUNNING, "are being written already"),
        (RetryPartition(0), OperationState.RUNNING, "are recovering already"),
        (AdoptSnapshot(0, 42), OperationState.PENDING, "the owner is checking the snapshot"),
        (PausePartition(0), OperationState.PENDING, "`snapreplay resume` undoes it"),
        (ResumePartition(0), OperationState.PENDING, "`snapreplay pause` undoes it"),
        (DrillPartition(0), OperationState.SUCCEEDED, "it has succeeded"),
        (DrainProcess(), OperationState.FAILED, "it has failed"),
    ],
)
def test_what_continues_despite_the_request_says_why(command, state, why):
    """And nothing of it is changed."""
    operations = OperationRegistry()
    made = operations.create(command, [0])
    operations.report(made.id, 0, state, None, "")
    before = found(operations, made)
    with pytest.raises(NotCancellable, match=why):
        operations.cancel(made.id, "")
    assert found(operations, made) == before
    with pytest.raises(NotCancellable, match="it is not known here"):
        operations.cancel("nothing", "")


@pytest.mark.parametrize(
    "command", [TriggerSnapshot(), RetryPartition(0), DrillPartition(0), DrainProcess(), CreateSavepoint("before-42")]
)
def test_what_can_be_cancelled_before_it_begins(command):
    """It has an end then."""
    operations = OperationRegistry()
    made = operations.create(command, [0])
    after, _ = operations.cancel(made.id, "")
    assert (after.state, after.finished_at is not None) == ("cancelled", True)

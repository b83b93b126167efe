"""Brings a state from one batch to the next by the recorded changes; no handler runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from snapreplay.errors import DamagedError, RebuildError
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.records import ChangesRecord, LogEntry
from snapreplay.snapshots.log.batches import Step
from snapreplay.snapshots.log.place import decode_as
from snapreplay.state.contract import StateChanges
from snapreplay.state.steps import Steps


class ChangesLost(RebuildError):
    """The changes of a batch are damaged, missing, or were never recorded: replay may still lead there."""


class Changing(Protocol):
    """The receiver of changes: a `Store`, or entries that nobody handles."""

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        """Clear these stores, then write and delete entries."""


def apply_changes(step: Step, state: Changing, decoded: Sequence[LogEntry | None] | None = None) -> Steps[None]:
    """Apply one batch, and those before it whose increments cannot be read.

    Args:
        decoded: see `check_changes`.

    Raises:
        ChangesLost: it was written without changes.
        DamagedError: they are not what the increment names; the state has a part of them.
        UnknownFormatError: a newer version wrote them.
    """
    _apply_unread(step, state)
    increment = step.increment
    if increment.cleared:
        state.apply_changes({}, increment.cleared)
    where = f"{step.place} offset {step.offset}: batch {increment.batch}"
    if increment.changes is None:
        if not increment.is_empty:
            raise ChangesLost(f"{where} was written without changes (changelog.enabled = false)")
        return
    try:
        for stores in check_changes(increment.changes, step.changes, decoded):
            state.apply_changes(stores)
            yield
    except DamagedError as error:
        raise DamagedError(f"{where}: {error.message}", hint=error.hint, **error.facts) from error


def _apply_unread(step: Step, state: Changing) -> None:
    """Apply the batches without an increment: only the next digest shows whether this is all that they changed."""
    first_batch = step.increment.batch - len(step.unread)
    for batch, each in enumerate(step.unread, first_batch):
        for part, value in enumerate(each.changes):
            record = decode_as(ChangesRecord, value, step.place, each.offset)
            if (record.batch, record.part) != (batch, part):
                raise each.error
            state.apply_changes(record.stores)

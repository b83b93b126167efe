"""Finds what fails among many by halves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from snapreplay.app.record import InputRecord
from snapreplay.errors import RecordError
from snapreplay.state.steps import Steps

Tried = tuple[RecordError | None, int]
"""The error, and how many records were applied before it; all of them if only staging failed."""

R = TypeVar("R", bound=InputRecord)


def halving(
    records: Sequence[R],
    trying: Callable[[Sequence[R]], Steps[Tried]],
    goes_on_without: Callable[[R, RecordError], bool],
) -> Steps[RecordError | None]:
    """Apply all records with `trying`, which applies all it is given or, after an error, none; a failing record is left
    out if `goes_on_without` says so.

    A value that many records touch costs its whole size each time it is staged. So records are staged together as long
    as they can be, and halved when they cannot: a batch with one failing record costs about two batches.

    Returns:
        The error that ended it before the last record, or None.
    """
    # One of the records from `start` to `suspects_end` fails, or several do together.
    start, suspects_end, size = 0, len(records), max(1, len(records) // 2)
    while start < len(records):
        together = records[start : start + size]
        error, applied_count = yield from trying(together)
        if error is None:
            start += len(together)
            size = max(1, (suspects_end - start) // 2) if start < suspects_end else 2 * size
        elif len(together) > 1:
            all_applied = applied_count == len(together)
            suspects_end = start + applied_count + (not all_applied)
            size = max(1, applied_count // 2 if all_applied else applied_count)
        elif goes_on_without(together[0], error):
            start += 1
        else:
            return error
    return None

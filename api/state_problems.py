"""Makes problem documents of what is wrong with a read of a state."""

from __future__ import annotations

from collections.abc import Sequence

from snapreplay.api import problems
from snapreplay.api.problems import FieldError, ProblemError, ProblemKind
from snapreplay.counted import counted
from snapreplay.errors import RetryableError, UsageError
from snapreplay.service.control.savepoint_list import SavepointsUnread
from snapreplay.service.control.state_reads import (
    BatchNotReached,
    NoMap,
    NotRead,
    NotReadable,
    ReadLate,
    UnknownMap,
    WrongRead,
)

UNKNOWN_STORE = ProblemKind("unknown-store", 404, "No such store")
NO_KEY = ProblemKind("key-not-found", 404, "No such key")
NO_MAP = ProblemKind("state-not-a-map", 409, "The state is no map")
NOT_REACHED = ProblemKind("batch-not-reached", 409, "The batch has not come")
NOT_READABLE = ProblemKind("partition-not-readable", 503, "The partition cannot be read now")
LATE = ProblemKind("read-late", 503, "The state was not read in time")

OF_A_RANGE = (
    *(UNKNOWN_STORE, problems.UNKNOWN_PARTITION, problems.NOT_HERE, NO_MAP, NOT_REACHED, problems.INVALID),
    *(NOT_READABLE, problems.OWNER_AWAY, LATE, problems.BUSY_LINE, problems.NOT_REACHED),
)
"""What a read may be answered with."""
OF_A_KEY = (NO_KEY, *OF_A_RANGE)
OF_A_HISTORY = (
    *(UNKNOWN_STORE, problems.UNKNOWN_PARTITION, NO_MAP, problems.INVALID),
    *(NOT_READABLE, LATE, problems.BUSY_LINE, problems.NOT_REACHED),
)

_SOON = {"Retry-After": "1"}


def of(error: UsageError | RetryableError) -> Exception:
    """Return the problem of a read that was refused; other errors are returned as they are."""
    match error:
        case UnknownMap():
            return ProblemError(UNKNOWN_STORE, error.message)
        case NoMap():
            hint = "only a MapState or Stores has entries with keys; the output topics may have what you look for"
            return ProblemError(NO_MAP, error.message, hint=hint)
        case WrongRead():
            return wrong(error.where, error.why)
        case NotReadable():
            return _not_readable(error)
        case BatchNotReached():
            hint = "read again, or leave `min_batch` out to read what there is"
            return ProblemError(NOT_REACHED, error.message, partition=error.partition, headers=_SOON, hint=hint)
        case SavepointsUnread():
            return ProblemError(problems.SAVEPOINTS_UNREAD, error.message, headers=_SOON, hint=error.hint)
        case ReadLate():
            hint = "a handler keeps the partitions' loop to itself, or the process is frozen; GET /healthz says which"
            return ProblemError(LATE, error.message, headers=_SOON, hint=hint)
        case _:
            return error


def wrong(where: str, why: str) -> ProblemError:
    """Make the error for a part of a request. The value itself is not repeated: it may be a secret."""
    return ProblemError(problems.INVALID, f"{where}: {why}", errors=(FieldError(where=where, message=why),))


def not_found(read: Sequence[int], not_read: Sequence[NotRead]) -> ProblemError:
    """Make the error for a key that was not found: it is not there, or that is not known."""
    if not not_read:
        asked = f"{counted(len(read), 'partition')} {'was' if len(read) == 1 else 'were'} read"
        return ProblemError(NO_KEY, f"the key is not in the store: {asked}", partitions=tuple(read))
    missing = "; ".join(f"partition {each.partition}: {each.reason}" for each in not_read[:5])
    missing += f"; and {len(not_read) - 5} more" if len(not_read) > 5 else ""
    return ProblemError(
        NOT_READABLE,
        f"the key was not found, but {counted(len(not_read), 'partition')} could not be read: {missing}",
        partitions=tuple(read),
        headers=_SOON,
        hint="GET /restore-status says what each partition is doing, and which process owns it",
    )


def _not_readable(error: NotReadable) -> ProblemError:
    if error.phase is None:
        hint = "GET /restore-status?scope=app names the process that owns it, if one is known"
        return ProblemError(problems.NOT_HERE, error.message, partition=error.partition, hint=hint)
    hint = f"GET /restore-status says how far it is; it is {error.phase}"
    return ProblemError(
        NOT_READABLE, error.message, partition=error.partition, phase=error.phase, headers=_SOON, hint=hint
    )

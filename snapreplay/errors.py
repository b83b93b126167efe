"""The error tree. The class of an error decides how its owner reacts; no caller reads the message for that.

    SnapreplayError
    ├── RetryableError      RETRY    transient: back off and try again inside the deadline
    │   ├── AccessError     RETRY    Kafka refuses access: continues without a restart once an operator has acted
    │   ├── RecordsGone     RETRY    the records, or their topic, were deleted
    │   └── RegistryUnavailable  RETRY  the schema registry does not answer, or refuses access
    ├── RebuildError        REBUILD  this snapshot or range is unusable: plan without it
    ├── ReleaseError        RELEASE  we are not the owner (any more)
    ├── StopError           STOP     an operator must act; `hint` says how
    ├── RecordError         one input record cannot be applied: the handler-error policy decides
    └── UsageError          the app, the settings or the call is wrong: refused before anything runs

Below these are the errors that a program meets which calls the service: NotBegun, NotLive, NotCaughtUp,
PartitionNotLive, UnknownPartition, ServiceClosed. Pure: imports nothing of the project.
"""

from __future__ import annotations

import traceback
from enum import Enum
from pathlib import Path
from typing import ClassVar, NamedTuple

__all__ = [
    "AccessError",
    "DamagedError",
    "NotBegun",
    "NotCaughtUp",
    "NotLive",
    "PartitionNotLive",
    "Reaction",
    "RebuildError",
    "RecordError",
    "RecordId",
    "RegistryUnavailable",
    "ReleaseError",
    "RetryableError",
    "ServiceClosed",
    "SnapreplayError",
    "StopError",
    "UnknownFormatError",
    "UnknownPartition",
    "UsageError",
]


class Reaction(Enum):
    """The reaction of a partition's owner to an error."""

    RETRY = "retry"
    REBUILD = "rebuild"
    RELEASE = "release"
    STOP = "stop"
    HANDLER_POLICY = "handler_policy"
    REFUSE = "refuse"


_PACKAGE = Path(__file__).parent


def described(error: BaseException) -> str:
    """Return class and text of a foreign error, because its text alone is often empty; of our errors only the text."""
    text, name = str(error), type(error).__name__
    if isinstance(error, SnapreplayError):
        return text
    if isinstance(error, TimeoutError) and not text:
        return "deadline passed"
    return text if text.startswith(name) else f"{name}: {text}" if text else name


def line_of(error: BaseException) -> str:
    """Return the innermost line outside this package and the import system, as in " (ledger.py line 3: import foo)", or
    an empty string."""
    if isinstance(error, SyntaxError):
        if error.lineno is None:
            return ""
        text = (error.text or "").strip()
        return f" ({Path(error.filename or '?').name} line {error.lineno}: {text})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "importlib" not in frame.filename and not Path(frame.filename).is_relative_to(_PACKAGE):
            return f" ({Path(frame.filename).name} line {frame.lineno}: {frame.line})"
    return ""


class SnapreplayError(Exception):
    """Root of all errors of this package.

    Attributes:
        message: one sentence that names the thing and the value.
        hint: what a person can do about it, with the exact command if there is one; may be empty.
        facts: the values in the message, by name, for machines (status, logs, problem documents).
    """

    reaction: ClassVar[Reaction]

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class RetryableError(SnapreplayError):
    """A transient error: the same call may succeed later, perhaps on a new connection."""

    reaction = Reaction.RETRY


class AccessError(RetryableError):
    """Kafka refuses access, or a permission is missing. A running process retries with back-off, because an operator
    can repair both meanwhile. At a start the process ends.

    Safe: A running partition waits, loses nothing, and resumes once access is restored. Do not restart its process
    before that, because it could not start.
    """


class RecordsGone(RetryableError):
    """Records cannot be read because they were deleted from the topic."""


class RegistryUnavailable(RetryableError):
    """The schema registry does not answer, refuses access, or returns something that is not a schema.

    Safe: The records that need the schema wait in their input. No record is skipped, and processing resumes by itself
    once the registry answers.
    """


class RebuildError(SnapreplayError):
    """A snapshot, or a range of increments, cannot be used; another mode may work."""

    reaction = Reaction.REBUILD


class ReleaseError(SnapreplayError):
    """Another process owns the partition, or this one has lost it."""

    reaction = Reaction.RELEASE


class StopError(SnapreplayError):
    """Continuing could lose or duplicate data, so an operator must act.

    Safe: The step that could lose or repeat data was not done, and committed data stays. Nothing is lost while you look
    for the cause, as long as the inputs' retention lasts.
    """

    reaction = Reaction.STOP


class UsageError(SnapreplayError):
    """The app, a setting or a call is wrong; nothing was started.

    Safe: Nothing was changed before the refusal, so you may try again once you have corrected the cause. If a partition
    of a running service has the error, it is FAILED, and its input waits.
    """

    reaction = Reaction.REFUSE


class NotBegun(StopError):
    """The app was never initialised: its genesis has not been written yet.

    Safe: A waiting process has fenced and claimed nothing, so you may restart it. Do not run `init` for an app that ran
    before.
    """


class NotLive(StopError):
    """The partitions did not become LIVE in time, or one of them FAILED."""


class NotCaughtUp(StopError):
    """The partitions did not reach the ends of their inputs in time.

    Safe: Only the wait has ended. The service continues, and you may wait again.
    """


class ServiceClosed(UsageError):
    """The service was stopped, or was never started: it has no state.

    Safe: Only this call has failed, and it has changed nothing.
    """


class UnknownPartition(UsageError):
    """The app has no such partition.

    Attributes:
        partition: the number in the request.
        partition_count: how many there are; None: the cluster was not reached yet.
    """

    def __init__(self, partition: int, partition_count: int | None) -> None:
        known = "" if partition_count is None else f": there are {partition_count}, from 0"
        super().__init__(f"partition {partition!r} does not exist{known}", partition=partition, count=partition_count)
        self.partition = partition
        self.partition_count = partition_count


class PartitionNotLive(RetryableError):
    """The partition exists, but it is not LIVE in this process.

    Safe: Only this call has failed, and it has changed nothing. You may repeat it.

    Attributes:
        partition: the number in the request.
        detail: why: its phase, or that another process owns it.
    """

    def __init__(self, partition: int, detail: str, *, hint: str = "") -> None:
        super().__init__(f"partition {partition} is not LIVE here: {detail}", hint=hint, partition=partition)
        self.partition = partition
        self.detail = detail


class RecordId(NamedTuple):
    """Identifies one input record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return a unique and stable id, "payments-3-1042"."""
        return f"{self.topic}-{self.partition}-{self.offset}"


class RecordError(SnapreplayError):
    """One input record or one timer cannot be processed (codec, handler, size), and would fail again.

    Safe: The record has changed neither the state nor the outputs. With the policy `fail`, the partition stops before
    this record, and later resumes with exactly this record. With `dead_letter`, the record is kept in
    `<app_id>-dead-letters`, and the later ones are processed.

    Attributes:
        record_id: None while it is not known, and of a timer.
        timer_id: of a timer, else None.
    """

    reaction = Reaction.HANDLER_POLICY

    def __init__(self, message: str, *, record_id: RecordId | None = None, hint: str = "", **facts: object) -> None:
        super().__init__(message, hint=hint, **facts)
        self.record_id = record_id
        self.timer_id: str | None = None


class DamagedError(RebuildError):
    """Bytes in a topic are not those that were written: a checksum, length or structure is wrong.

    Safe: Damaged records are not applied, so the state stays right. Do not remove anything from a broker's disk before
    an intact replica leads the partition.
    """


class UnknownFormatError(StopError):
    """A record has a format version that this build does not know: a newer build wrote it.

    Safe: The record is not used, and nothing is lost. The build that wrote it may be started again.
    """

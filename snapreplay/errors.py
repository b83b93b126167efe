"""The error tree. The class of an error is the reaction to it; no caller ever reads a message to decide.

    SnapreplayError
    ├── RetryableError      RETRY    transient: back off and try again inside the deadline
    │   └── AccessError     RETRY    Kafka keeps us out: an operator must act, and then it goes on by itself
    ├── RebuildError        REBUILD  this snapshot or range is unusable: plan without it
    ├── ReleaseError        RELEASE  we are not the owner (any more)
    ├── StopError           STOP     an operator must act; `hint` says how
    ├── RecordError         one input record cannot be applied: the handler-error policy decides
    └── UsageError          the app, the settings or the call is wrong: refused before anything runs

Pure: imports nothing of the project.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, NamedTuple


class Reaction(Enum):
    """What the owner of a partition does about an error."""

    RETRY = "retry"
    REBUILD = "rebuild"
    RELEASE = "release"
    STOP = "stop"
    HANDLER_POLICY = "handler_policy"
    REFUSE = "refuse"


class SnapreplayError(Exception):
    """Root of all errors of this package.

    Attributes:
        message: one sentence that names the thing and the value.
        hint: what a person can do about it, an exact command where there is one; may be empty.
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
    """Transient: the same call may succeed later, perhaps on a new connection."""

    reaction = Reaction.RETRY


class AccessError(RetryableError):
    """Kafka refuses access, or a permission is missing. Credentials are renewed and permissions are given back, so it
    is retried with back-off, without a restart. Only at the start of a process it ends the process."""


class RebuildError(SnapreplayError):
    """A snapshot, or a range of increments, cannot be used; another mode may exist."""

    reaction = Reaction.REBUILD


class ReleaseError(SnapreplayError):
    """Somebody else owns the partition, or it was taken from us."""

    reaction = Reaction.RELEASE


class StopError(SnapreplayError):
    """Going on could lose or double data: an operator must decide."""

    reaction = Reaction.STOP


class UsageError(SnapreplayError):
    """The app, a setting or a call is wrong; nothing was started."""

    reaction = Reaction.REFUSE


class RecordId(NamedTuple):
    """Which record of which input."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Unique and stable, "payments-3-1042"."""
        return f"{self.topic}-{self.partition}-{self.offset}"


class RecordError(SnapreplayError):
    """One input record cannot be applied (codec, handler, size): deterministic, not transient.

    Attributes:
        record_id: of the record; None while it is not known yet.
    """

    reaction = Reaction.HANDLER_POLICY

    def __init__(
        self, message: str, *, record_id: RecordId | None = None, hint: str = "", **facts: object
    ) -> None:
        super().__init__(message, hint=hint, **facts)
        self.record_id = record_id


class DamagedError(RebuildError):
    """Bytes read from a topic are not what was written there: checksum, length, structure."""


class UnknownFormatError(StopError):
    """A record of ours carries a format version this build does not know (written by a newer one)."""

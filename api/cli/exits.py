"""The exit codes, and which error gives which. Scripts rely on them: never renumber."""

from __future__ import annotations

from enum import IntEnum

from snapreplay.devbroker.errors import LocalBrokerUnavailable
from snapreplay.errors import (
    AccessError,
    Reaction,
    RebuildError,
    RetryableError,
    SnapreplayError,
    StopError,
    UsageError,
)
from snapreplay.service.core.kafka_errors import ClockRefused, NotAuthenticated, RefusedRecord
from snapreplay.service.signals import STOPPED_LATE


class ExitCode(IntEnum):
    OK = 0
    FINDINGS = 1  # the audit found something, an operation failed or was refused, not healthy
    REFUSED = 2  # the command, the app or the settings are wrong; nothing was started
    UNREACHABLE = 3  # no broker or no service answered, or there is no local broker
    OPERATOR = 4  # the topics are not as they must be; the hint says what to do
    CUT_OFF = STOPPED_LATE  # `run` had not stopped in time
    NOT_YET = 5  # no partition failed, but not all are live


class OperationRefused(SnapreplayError):
    """The service answered with a problem document, or the command cannot be carried out; `code` is its exit code.

    Safe: What was refused was not begun, and the service continues. If the message says that a part was begun, or that
    this is not known, `snapreplay operations` shows what was begun.
    """

    reaction = Reaction.REFUSE

    def __init__(self, message: str, *, hint: str, code: ExitCode, **facts: object) -> None:
        super().__init__(message, hint=hint, **facts)
        self.code = code


def code_of(error: SnapreplayError) -> ExitCode:
    """Return the exit code for an error that ended a command."""
    match error:
        case OperationRefused():
            return error.code
        case NotAuthenticated() | RefusedRecord():  # the settings are wrong, as a rule, or the record
            return ExitCode.REFUSED
        case AccessError() | ClockRefused():
            return ExitCode.OPERATOR
        case RetryableError() | LocalBrokerUnavailable():  # a UsageError, but not the user's
            return ExitCode.UNREACHABLE
        case UsageError():
            return ExitCode.REFUSED
        case StopError() | RebuildError():
            return ExitCode.OPERATOR
        case _:
            return ExitCode.FINDINGS


def hint_of(error: SnapreplayError) -> str:
    """Return the error's own hint, or what to check first if the cluster did not answer."""
    if not error.hint and isinstance(error, RetryableError):
        return "check that the cluster is up, and say where it is with --bootstrap-servers"
    return error.hint

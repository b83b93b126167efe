"""Errors of the local broker, worded for the person who typed the command."""

from pathlib import Path

from snapreplay.errors import UsageError


class LocalBrokerUnavailable(UsageError):
    """The local broker is not available: a tool is missing, or the broker failed.

    Safe: No app was started, and a data directory stays as it is.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)

    def __str__(self) -> str:
        # Two lines: a hint may be long and contain the end of a log.
        return f"{self.message}\n{self.hint}"


class ToolsMissing(LocalBrokerUnavailable):
    """Java, Maven or the jars are missing."""


class LocalBrokerFailed(LocalBrokerUnavailable):
    """The broker ended after its start, or was not ready within its deadline.

    Safe: No app was started. A data directory that you named is kept. A temporary one is deleted, except the log.

    Attributes:
        log_path: the broker's whole log; it is kept, a temporary data directory is not.
    """

    def __init__(self, message: str, hint: str, log_path: Path) -> None:
        super().__init__(message, hint)
        self.log_path = log_path

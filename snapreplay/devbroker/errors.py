"""What can go wrong with the local broker, in words for the person who typed the command."""

from pathlib import Path
from typing import Self

from snapreplay.errors import UsageError


class LocalBrokerUnavailable(UsageError):
    """The local broker cannot be had here: something is missing, or it failed.

    Attributes:
        message: what is wrong, in one line.
        hint: what to do about it, as a command where there is one.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)

    def __str__(self) -> str:
        # Two lines: a hint here may be long, and hold the end of a log.
        return f"{self.message}\n{self.hint}"


class ToolsMissing(LocalBrokerUnavailable):
    """Java, Maven or the jars cannot be had here."""

    def or_else(self, alternative: str) -> Self:
        """Itself, with a way to do without the local broker in the hint: the command knows it."""
        self.hint = f"{self.hint}; or {alternative}"
        return self


class LocalBrokerFailed(LocalBrokerUnavailable):
    """The broker was started and ended, or did not get ready within its deadline.

    Attributes:
        log_path: the broker's whole log; it is kept, a temporary data directory is not.
    """

    def __init__(self, message: str, hint: str, log_path: Path) -> None:
        super().__init__(message, hint)
        self.log_path = log_path

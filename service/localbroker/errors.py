"""What can go wrong with the local broker, in words for the person who typed the command."""

from pathlib import Path

from snapreplay.snapshots.errors import UsageError


class LocalBrokerUnavailable(UsageError):
    """The local broker cannot be had here: a tool is missing, or its jars, or it failed.

    Attributes:
        message: what is wrong, in one line.
        hint: what to do about it, as a command where there is one.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)

    def __str__(self) -> str:
        # Two lines: a hint here may be long, and hold the end of a log.
        return f"{self.message}\n{self.hint}"


class LocalBrokerFailed(LocalBrokerUnavailable):
    """The broker was started and ended, or did not get ready within its deadline.

    Attributes:
        log_path: the broker's whole log; it is kept, a temporary data directory is not.
    """

    def __init__(self, message: str, hint: str, log_path: Path) -> None:
        super().__init__(message, hint)
        self.log_path = log_path

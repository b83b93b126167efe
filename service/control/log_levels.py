"""The levels of loggers, as they are changed while a process runs."""

from __future__ import annotations

import logging

log = logging.getLogger("snapreplay")


class LogLevels:
    """Knows the levels at the start of the loggers that were changed."""

    def __init__(self) -> None:
        self._at_start: dict[str, int] = {}

    def set(self, logger: str, level: str) -> None:
        """Log from this level on; "default": as it was started."""
        log.warning("logger %s: level %s from now on, as asked over HTTP", logger, level)
        found = logging.getLogger(logger)
        at_start = self._at_start.setdefault(logger, found.level)
        found.setLevel(at_start if level == "default" else level.upper())

"""Changes the levels of loggers while a process runs."""

from __future__ import annotations

import logging

log = logging.getLogger("snapreplay")


class LogLevels:
    """Sets levels, and remembers those that the loggers had at the start."""

    def __init__(self) -> None:
        self._at_start: dict[str, int] = {}

    def set(self, logger: str, level: str) -> None:
        """Let a logger log from this level on; "default" is the level that it had at the start."""
        log.warning("logger %s: level %s from now on, as asked over HTTP", logger, level)
        found = logging.getLogger(logger)
        at_start = self._at_start.setdefault(logger, found.level)
        found.setLevel(at_start if level == "default" else level.upper())

"""Remembers when a trouble began."""

from __future__ import annotations

from datetime import datetime

from snapreplay.service.clock import wall_time


class Since:
    """The time when the present trouble was first seen."""

    def __init__(self) -> None:
        self._at: datetime | None = None

    def of(self, trouble: str | None) -> datetime | None:
        """Return when this trouble was first seen; None without one. What ends between two calls is missed."""
        self._at = None if trouble is None else self._at or wall_time()
        return self._at

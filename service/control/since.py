"""Remembers since when something has been so."""

from __future__ import annotations

from datetime import datetime

from snapreplay.service.clock import wall_time


class Since:
    """The time at which the present trouble was seen first."""

    def __init__(self) -> None:
        self._at: datetime | None = None

    def of(self, trouble: str | None) -> datetime | None:
        """Return since when there is one; None: there is none. To be asked often enough that none is missed."""
        self._at = None if trouble is None else self._at or wall_time()
        return self._at

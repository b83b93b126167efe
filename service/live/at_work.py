"""The news that a LIVE partition is at work: a batch was committed, or there was none to commit for a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

QUIET_SECONDS = 1.0


class AtWork:
    """Tells once. LIVE alone proves little: a partition that failed at a record meets it again in its first turn."""

    def __init__(self, batch: int) -> None:
        """Take `batch`, the last one that was committed before."""
        self._batch, self._began = batch, asyncio.get_running_loop().time()
        self._tell: Callable[[], None] | None = None

    def then(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the partition is at work."""
        self._tell = tell

    def look(self, batch: int, *, idle: bool) -> None:
        """Look after each turn; `batch` was committed last, and no transaction is under way if `idle`."""
        if self._tell is None:
            return
        quiet = asyncio.get_running_loop().time() - self._began > QUIET_SECONDS
        if batch > self._batch or (quiet and idle):
            tell, self._tell = self._tell, None
            tell()

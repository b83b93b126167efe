"""A few at a time, where many would only delay each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 16
LONGEST_SECONDS = 2.0


class StartTurns:
    """One per process: lets a few partitions at a time begin a recovery. When hundreds fence and claim at once on a
    slow machine, each of them takes longer than its deadline, and none ever ends.

    Who takes longer than a moment waits for somebody else, and makes room.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Take a turn for the length of the block."""
        await self._free.acquire()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._free.release()

        late = asyncio.get_running_loop().call_later(LONGEST_SECONDS, end)
        try:
            yield
        finally:
            late.cancel()
            end()

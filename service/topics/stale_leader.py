"""A log that seems too short: the broker that says so may be a leader that its peers have replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from snapreplay.service.ports import Cluster, TopicPartition

# A leader cut off from its peers was believed for up to 11 s after healing (measured).
PATIENCE_SECONDS = 15.0
ASK_AGAIN_SECONDS = 0.5
AGREED_TIMES = 3  # all brokers, half a second apart: an election may be under way

OnWaiting = Callable[[str], None]
"""Called with a sentence without its full stop."""


class Patience:
    """The time that a log that seems too short is asked for again, with new clients. Begins when it is made."""

    def __init__(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        self._agreed = 0

    @property
    def left_seconds(self) -> float:
        """Negative once it is over."""
        return self._deadline - asyncio.get_running_loop().time()

    @property
    def is_over(self) -> bool:
        """Nobody is expected to know more: all brokers agree, or the time is up."""
        return self.left_seconds < 0 or self._agreed >= AGREED_TIMES

    async def ask_all(self, cluster: Cluster, log: TopicPartition, end_offset: int) -> None:
        """Ask all brokers whether the log ends before `end_offset`."""
        known = await cluster.agreed_end_offset(log)
        is_shorter = known is not None and known < end_offset
        self._agreed = self._agreed + 1 if is_shorter else 0

    async def pause(self) -> None:
        """Wait until the next try."""
        await asyncio.sleep(ASK_AGAIN_SECONDS)

"""Notices when the runners' loop has not run for a while. Meanwhile another process may have taken the partitions, and
topics may have been replaced, so listeners ask again for what they knew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from snapreplay.service.clock import boot_seconds

BEAT_SECONDS = 0.25
STOOD_STILL_SECONDS = 1.0

OnStoodStill = Callable[[float], None]
"""Called in the loop, with the seconds for which it was blocked; must be quick."""


class Pulse:
    """The pulse of one loop; before `beat` runs, no standstill is noticed. Timers run after what came over a socket
    meanwhile, so call `look` before anything that must not be done after a standstill."""

    def __init__(self, now: Callable[[], float] = boot_seconds) -> None:
        """Take `now`: seconds, which also count while the machine is suspended (the loop's own clock stops)."""
        self._now = now
        self._turned_at: float | None = None
        self._listeners: list[OnStoodStill] = []

    @property
    def silent_seconds(self) -> float:
        """The time since the loop turned last, and the listeners were called; 0 before `beat`. Any thread."""
        turned_at = self._turned_at
        return 0.0 if turned_at is None else max(0.0, self._now() - turned_at)

    @contextmanager
    def notifying(self, listener: OnStoodStill) -> Iterator[None]:
        """Call `listener` after every standstill during the block. Only in the loop, as the methods below."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def look(self) -> None:
        """Note that the loop turns now. Calls the listeners if it was blocked for more than a second."""
        if self._turned_at is None:
            return
        silent_seconds = self.silent_seconds
        if silent_seconds > STOOD_STILL_SECONDS:
            for listener in tuple(self._listeners):
                listener(silent_seconds)
        self._turned_at = self._now()

    async def beat(self) -> None:
        """Look every quarter of a second, for ever."""
        self._turned_at = self._now()
        try:
            while True:
                await asyncio.sleep(BEAT_SECONDS)
                self.look()
        finally:
            self._turned_at = None

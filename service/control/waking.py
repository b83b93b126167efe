"""The news that something has changed, for those who wait in any loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Waking:
    """Wakes all who wait. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @contextmanager
    def changes(self, loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Event]:
        """Provide an event of `loop` that is set at every change, for the length of the block."""
        waiting = (loop, asyncio.Event())
        self._waiting.append(waiting)
        try:
            yield waiting[1]
        finally:
            self._waiting.remove(waiting)

    def wake(self, *_: object) -> None:
        """Wake them, whatever has changed."""
        for loop, event in tuple(self._waiting):
            loop.call_soon_threadsafe(event.set)

"""A thread with an event loop of its own, which slow handlers and replays do not delay."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

JOIN_SECONDS = 5.0


class LoopThread:
    """Start once, stop once. `run` may be awaited from any other loop."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` there; the future gets its result."""
        return asyncio.run_coroutine_threadsafe(work, self._started())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` there and wait for its result here."""
        return await asyncio.wrap_future(self.submit(work))

    def stop(self) -> None:
        """End the loop and its tasks; bounded. Idempotent."""
        if self._loop is None or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_SECONDS)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise AssertionError("start comes first")
        return self._loop

    def _serve(self) -> None:
        loop = self._started()
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=JOIN_SECONDS))
            loop.close()

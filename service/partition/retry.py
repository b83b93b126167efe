"""An operator's word that a FAILED partition is to recover again, and the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from snapreplay.service.partition.context import ClusterView
from snapreplay.service.partition.snapshot_keeper import OnDone
from snapreplay.service.partition.tasks import ended
from snapreplay.snapshots.errors import SnapreplayError

Found = ClusterView | SnapreplayError
"""What the cluster looks like now, or what about it still refuses every partition."""


class Retry:
    """One per partition and process; its runner waits, the supervisor asks, in the same loop."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._found: Found | None = None
        self._done: OnDone | None = None

    def ask(self, found: Found, done: OnDone) -> None:
        """`done` hears of the end: LIVE and at work, or what came instead."""
        self._found, self._done = found, done
        self._asked.set()

    async def until_asked(
        self, stopped: asyncio.Event, other: Coroutine[Any, Any, None] | None = None
    ) -> Found | None:
        """None: `stopped` was set, or `other` ended, first."""
        loop = asyncio.get_running_loop()
        waits: list[Coroutine[Any, Any, object]] = [stopped.wait(), self._asked.wait()]
        waiting = [loop.create_task(each) for each in (*waits, *([other] if other else []))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                await ended(task)
        asked = self._asked.is_set() and not stopped.is_set()
        self._asked.clear()
        return self._found if asked else None

    @property
    def under_way(self) -> bool:
        """Somebody waits for the answer."""
        return self._done is not None

    def succeeded(self) -> None:
        self.answer("succeeded")

    def answer(self, state: str, detail: str = "") -> None:
        """Once, to whoever asked last."""
        done, self._done = self._done, None
        if done is not None:
            done(state, None, detail)

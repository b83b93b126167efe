"""An operator's request that a FAILED partition recovers again, and the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from snapreplay.errors import SnapreplayError
from snapreplay.service.control.protocol import OnDone, OperationState
from snapreplay.service.runtime.context import ClusterView
from snapreplay.service.runtime.tasks import cancel_and_wait

LookedAt = ClusterView | SnapreplayError
"""What the cluster looks like now, or why every partition is still refused."""


class RetryRequest:
    """One per partition and process; its runner waits, the supervisor asks, in the same loop."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._found: LookedAt | None = None
        self._done: OnDone | None = None

    def ask(self, found: LookedAt, done: OnDone) -> None:
        """Ask for a retry. `done` hears how it ended: LIVE and at work, or not."""
        self._found, self._done = found, done
        self._asked.set()

    async def until_asked(
        self, stopped: asyncio.Event, other: Coroutine[Any, Any, None] | None = None
    ) -> LookedAt | None:
        """Wait for `ask`; None: `stopped` was set, or `other` ended, first."""
        loop = asyncio.get_running_loop()
        waits: list[Coroutine[Any, Any, object]] = [stopped.wait(), self._asked.wait()]
        waiting = [loop.create_task(each) for each in (*waits, *([other] if other else []))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                await cancel_and_wait(task)
        asked = self._asked.is_set() and not stopped.is_set()
        self._asked.clear()
        return self._found if asked else None

    @property
    def under_way(self) -> bool:
        """Somebody waits for the answer."""
        return self._done is not None

    def succeeded(self) -> None:
        self.answer(OperationState.SUCCEEDED)

    def answer(self, state: OperationState, detail: str = "") -> None:
        """Answer whoever asked last, once."""
        done, self._done = self._done, None
        if done is not None:
            done(state, None, detail)

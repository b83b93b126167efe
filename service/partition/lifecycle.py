"""The state of a partition between its ownerships, and the waits for a retry and for the group.

Only the log decides who is fenced. A process that is cut off from the coordinator still believes that it owns the
partition, so it fences another claim in return only when the coordinator gives it the partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from snapreplay.errors import SnapreplayError
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.core.batch_failures import BatchFailures
from snapreplay.service.core.owners import fenced_pause_seconds
from snapreplay.service.core.ownership import Ownership
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.runtime.context import ClusterView, Context
from snapreplay.service.runtime.tasks import cancel_and_wait

log = logging.getLogger("snapreplay.partition")

LookedAt = ClusterView | SnapreplayError
"""What the cluster looks like now, or why every partition is still refused."""


class Lifecycle:
    """One per runner, which shares it with its incarnations.

    Attributes:
        stopped: the partition is to be released.
        ownership: as it was left last; `update` replaces it.
        interrupted: stopped or refused: nothing is waited for any more.
        last_snapshot: whether a LIVE partition writes one before it is released.
    """

    def __init__(self, context: Context) -> None:
        restore = context.settings.restore
        self.ownership = Ownership(
            context.expected, restore.retry_backoff_ms, restore.retry_backoff_max_ms, BatchFailures(context.partition)
        )
        self.stopped = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.last_snapshot = False

    @property
    def is_holding(self) -> bool:
        return self.ownership.is_holding

    def update(self, ownership: Ownership | None = None, **known: Any) -> None:
        """Replace fields. A stop or a refusal interrupts every wait, unless the state is held until it is written."""
        self.ownership = replace(ownership or self.ownership, **known)
        ends = self.stopped.is_set() or self.ownership.refused is not None
        if ends and not self.is_holding:
            self.interrupted.set()
        else:
            self.interrupted.clear()

    def stop(self) -> None:
        self.stopped.set()
        self.update()

    def take_back(self) -> None:
        """Process again: the partition is ours again."""
        self.stopped.clear()
        self.update(is_holding=False)

    def refuse(self, error: SnapreplayError) -> None:
        """Stop processing for this reason, which replaces a DuplicateInstance."""
        known = self.ownership.refused
        is_new = known is None or isinstance(known, DuplicateInstance)
        self.update(refused=error if is_new else known)

    def raise_refused(self) -> None:
        """Raise the reason why the partition must not process, unless it is held."""
        refused = self.ownership.refused
        if refused is not None and not self.is_holding:
            raise refused


class RetryRequest:
    """A request to recover a FAILED partition again. One per runner, which waits for it."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._found: LookedAt | None = None
        self._done: OnDone | None = None

    def ask(self, found: LookedAt, done: OnDone) -> None:
        """Request a retry. `done` is called with the result: LIVE and at work, or not."""
        if not done(OperationState.RUNNING, None, "it recovers"):
            self._found, self._done = found, done
            self._asked.set()

    async def until_asked(
        self, stopped: asyncio.Event, other: Coroutine[Any, Any, None] | None = None
    ) -> LookedAt | None:
        """Wait for `ask`; None: `stopped` was set, or `other` ended, first."""
        await _first_of(stopped.wait(), self._asked.wait(), *([other] if other else []))
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
        """Answer the last request, once."""
        done, self._done = self._done, None
        if done is not None:
            done(state, None, detail)


class TakeoverBackoff:
    """The waits of a partition that another process has claimed. One per runner."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reassigned = asyncio.Event()

    def on_reassigned(self) -> None:
        """End the wait: a new assignment has the partition."""
        self._reassigned.set()

    def forget_assignment(self) -> None:
        """Ignore the assignments so far: this process is not a member any more."""
        self._reassigned.clear()

    async def until_assigned(self, stopped: asyncio.Event) -> None:
        """Wait for an assignment since `forget_assignment`, or for `stopped`."""
        await self._either(stopped, None)

    async def until_given(self, times: int, stopped: asyncio.Event) -> None:
        """Ask the coordinator, ever more slowly, until it gives us the partition or `stopped` is set. No answer means
        no. The partition was taken `times` times in a row."""
        self._reassigned.clear()
        while not stopped.is_set():
            seconds = fenced_pause_seconds(times, self._context.identity.process_id, self._context.partition)
            await self._either(stopped, seconds)
            if stopped.is_set() or await self._given():
                return
            times += 1

    async def _given(self) -> bool:
        group, number = self._context.group, self._context.partition
        if group is None:
            return True
        try:
            given = await group.is_assigned_to_us(number)
        except SnapreplayError as error:
            log.warning("partition %d: cannot ask the group who has it: %s", number, error)
            return False
        if not given:
            log.info("partition %d: the group does not assign it to this process now", number)
        return given

    async def _either(self, stopped: asyncio.Event, seconds: float | None) -> None:
        """Wait until stopped, reassigned, or for `seconds`."""
        await _first_of(stopped.wait(), self._reassigned.wait(), seconds=seconds)
        self._reassigned.clear()


async def _first_of(*waits: Coroutine[Any, Any, object], seconds: float | None = None) -> None:
    """Wait until one of these ends, or for `seconds`; cancel the others."""
    tasks = [asyncio.get_running_loop().create_task(each) for each in waits]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            await cancel_and_wait(task)

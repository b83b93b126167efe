"""The owner of the partition: the log says who claimed it, the group's coordinator to whom it is given.

Only the log decides whether somebody is fenced at all: it is the only thing that two owners share. But a process that
is cut off from the coordinator still believes that it owns the partition. If the log shows another claim, it fences
that process in return only when the coordinator gives it the partition.
"""

from __future__ import annotations

import asyncio
import logging

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.backoff import fenced_pause_seconds
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.tasks import cancel_and_wait

log = logging.getLogger("snapreplay.partition")


class TakeoverBackoff:
    """The conduct of a process when another one has claimed its partition. One per partition and process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reassigned = asyncio.Event()

    def on_reassigned(self) -> None:
        """Wait no longer: the group has had a rebalance and we have the partition."""
        self._reassigned.set()

    def forget_assignment(self) -> None:
        """Count only a later assignment: we are no member any more."""
        self._reassigned.clear()

    async def until_assigned(self, stopped: asyncio.Event) -> None:
        """Wait for an assignment that holds the partition, since `forget_assignment`, or until `stopped` is set."""
        await self._either(stopped, None)

    async def until_given(self, times: int, stopped: asyncio.Event) -> None:
        """Wait, then ask the coordinator, ever more slowly, until it gives us the partition or `stopped` is set. The
        partition was taken `times` times in a row.

        No answer means no: a process that cannot reach the coordinator is not the owner for long.
        """
        self._reassigned.clear()
        while not stopped.is_set():
            await self._pause(times, stopped)
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
            log.info("partition %d: the group does not give it to us now", number)
        return given

    async def _pause(self, times: int, stopped: asyncio.Event) -> None:
        seconds = fenced_pause_seconds(
            times, self._context.identity.process_id, self._context.partition
        )
        await self._either(stopped, seconds)

    async def _either(self, stopped: asyncio.Event, seconds: float | None) -> None:
        """Wait until stopped, given again, or for `seconds`."""
        loop = asyncio.get_running_loop()
        waiting = [loop.create_task(each.wait()) for each in (stopped, self._reassigned)]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                await cancel_and_wait(task)
        self._reassigned.clear()

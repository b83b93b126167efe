"""The owner trims both topics after each pointer, so that they do not grow for ever.

Harmless from an owner that was fenced meanwhile: floors only rise, and its own are lower. What was deleted twice
is no error.
"""

from __future__ import annotations

import asyncio
import logging

from snapreplay.service.partition.context import Context
from snapreplay.service.partition.tasks import ended
from snapreplay.snapshots.errors import SnapreplayError
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.retention import Floors, retention_floors

log = logging.getLogger("snapreplay.partition")


class Trimmer:
    """One trim at a time, beside the processing; a failed one is made up for by the next."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None

    def pointed(self, last: Increment, last_offset: int) -> None:
        """A new pointer was committed with `last`. Nothing is trimmed before there are as many snapshots as are to
        be kept: until then recovery may fall back to the genesis."""
        kept = self._context.settings.retention.snapshots_kept
        if len(last.pointers) < kept or (self._task is not None and not self._task.done()):
            return
        floors = retention_floors(last, last_offset, kept)
        if floors is not None:
            self._task = asyncio.get_running_loop().create_task(self._trim(floors))

    async def close(self) -> None:
        if self._task is not None:
            await ended(self._task)

    async def _trim(self, floors: Floors) -> None:
        context = self._context
        try:
            await context.cluster.delete_records(context.snapshots, floors.snapshots_offset)
            await context.cluster.delete_records(context.increments, floors.increments_offset)
        except SnapreplayError as error:
            log.warning(
                "partition %d: not trimmed, the next snapshot tries again: %s",
                context.partition,
                error,
            )

"""The owner trims both topics after each pointer, so that they do not grow for ever.

Harmless from an owner that was fenced meanwhile: floors only rise, and its own are lower. Deleting twice is no error.

A snapshot is a reason to trim only while its topic exists. If the topic was deleted, the changes in the increments
topic may be all that is left of the state.
"""

from __future__ import annotations

import asyncio
import logging

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.topic_changes import changes
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.plan import Floors, retention_floors

log = logging.getLogger("snapreplay.partition")


class Trimmer:
    """One trim at a time, beside the processing; a failed one is made up for by the next."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None

    def pointed(self, last: Increment, last_offset: int) -> None:
        """Trim below the pointers of `last`, which has a new one. Nothing is trimmed before there are as many
        snapshots as are kept: until then a recovery may fall back to the genesis."""
        kept = self._context.settings.retention.snapshots_kept
        if len(last.pointers) < kept or (self._task is not None and not self._task.done()):
            return
        floors = retention_floors(last, last_offset, kept)
        if floors is not None:
            self._task = asyncio.get_running_loop().create_task(self._trim(last, floors))

    async def close(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _trim(self, last: Increment, floors: Floors) -> None:
        """Trim, unless the process has stood still since: the topics may have been replaced meanwhile."""
        context, stood_still = self._context, list[float]()
        own = (context.increments, context.snapshots)
        names = [each.topic for each in own]
        try:
            with context.pulse.told(stood_still.append):
                ids = await context.cluster.topic_ids(names)
                for change in changes(names, last.topic_ids, ids):
                    log.warning("partition %d: not trimmed: %s", context.partition, change)
                    return
                for partition, offset in reversed(list(zip(own, floors, strict=True))):
                    context.pulse.look()
                    if stood_still:
                        return  # the next snapshot tries again
                    await context.cluster.delete_records(partition, offset)
        except SnapreplayError as error:
            log.warning("partition %d: not trimmed, the next snapshot tries again: %s", context.partition, error)

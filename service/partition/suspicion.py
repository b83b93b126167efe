"""Has another process of our instance id claimed the partition? Asked while it is LIVE, beside the processing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import refusals
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.tasks import cancel_and_wait, watched
from snapreplay.service.topics.claims import newer_owner

log = logging.getLogger("snapreplay.partition")


class Suspicion:
    """One per partition and process; one question at a time."""

    def __init__(self, context: Context, refuse: Callable[[SnapreplayError], None]) -> None:
        """Take `refuse`, which is called with the error if there is such a process."""
        self._context = context
        self._refuse = refuse
        self._asking: asyncio.Task[None] | None = None

    def ask(self, owner_epoch: int | None) -> None:
        """Ask whether a newer process has claimed the partition since `owner_epoch`, ours; None: there is nothing
        to ask yet."""
        if owner_epoch is None or (self._asking is not None and not self._asking.done()):
            return
        asking = asyncio.get_running_loop().create_task(self._ask(owner_epoch))
        self._asking = watched(asking, "the question who owns a partition")

    async def end(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            await cancel_and_wait(self._asking)

    async def _ask(self, owner_epoch: int) -> None:
        try:
            newer = await newer_owner(self._context, owner_epoch)
        except SnapreplayError as error:
            log.warning(
                "partition %d: cannot find out who owns it: %s", self._context.partition, error
            )
            return
        duplicate = refusals.duplicate_instance(self._context.expected, newer) if newer else None
        if duplicate is not None:
            self._refuse(duplicate)

"""A partition's state in this process between two ownerships, and what may become of it.

The rule: no state in memory is dropped while no proven copy of it is in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import custody
from snapreplay.service.core.custody import Verdict
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.topic_changes import changes
from snapreplay.service.recovery.copy_in_log import last_now, looked_up, restorable, topic_ids_now
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.tasks import within
from snapreplay.service.topics.claims import newer_owner
from snapreplay.state.contract import Store

log = logging.getLogger("snapreplay.partition")

LOOK_SECONDS = 1.0
OTHERS_SECONDS = 5.0


class Memory:
    """The only owner of a partition's state in memory: one per runner. Recovery, processing and custody are handed it.

    Attributes:
        store: the state; None: it was forgotten.
        kept: what `store` holds, until it is LIVE again; None: nothing that counts.
        left_open: our last fence, if a transaction of it that is never asked to commit was seen open: the fence that
            ends it raises the producer epoch by two.
        last: the last increment that a recovery found in the log.
        recoverable: whether a recovery would find all it needs, as far as the last incarnation knows.
        proven: whether the log had a copy when it last answered; None: not asked since the state was LIVE.
    """

    def __init__(
        self, context: Context, store: Store | None = None, kept: RetainedState | None = None
    ) -> None:
        self._context = context
        self.store = store
        self.kept = kept
        self.left_open: Lineage | None = None
        self.last: FoundIncrement | None = None
        self.recoverable = True
        self.proven: bool | None = None
        self._said = Repeats()

    def own(self) -> Store:
        """Return the store for the next recovery, with what was kept or empty."""
        self.last = None
        if self.kept is None:
            self.forget()
        if self.store is None:  # an empty one is false
            self.store = self._context.app.new_store()
        return self.store

    def forget(self) -> None:
        """Free the state at once: the garbage collector would come late, and there would be two states in memory."""
        store, self.store, self.kept = self.store, None, None
        if store is not None and store.keeps_changes:
            store.clear()

    async def forget_if_proven(self) -> None:
        """Forget the state if it is proven: another process owns the partition."""
        if await self.is_proven():
            self.forget()

    async def is_proven(self) -> bool:
        """Say whether nothing would be lost if the process ended now. If the cluster does not answer, its last
        answer counts, or what was known when the last batch was committed."""
        kept = self.kept
        if kept is None:
            return True
        answer = await self._answer(kept)
        if answer is not None:
            self.proven = answer
        return self._was_proven(kept)

    def _was_proven(self, kept: RetainedState) -> bool:
        if self.proven is not None:
            return self.proven
        return self.recoverable and not kept.replaced

    async def _answer(self, kept: RetainedState) -> bool | None:
        outcome = await looked_up(self._context, kept)
        if outcome is Verdict.SAME:
            return self.recoverable and await restorable(self._context, kept.last)
        return None if outcome is None else outcome is Verdict.LEADS_ON

    async def until_proven(self, seconds: float = math.inf) -> None:
        """Wait until `is_proven`, at most this long: the operator, or the new owner, brings the log in order."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await self.is_proven() and loop.time() < deadline:  # noqa: ASYNC110 - it is in the cluster
            await asyncio.sleep(LOOK_SECONDS)

    async def is_to_be_written(self, owner_epoch: int | None) -> bool:
        """Say whether we must write the state ourselves: a newer owner gets some seconds to go on from the log."""
        line = self._said.line(
            f"its state is kept in memory: {self.unsaved}", asyncio.get_running_loop().time()
        )
        if line is not None:
            log.error("partition %d: %s", self._context.partition, line)
        if await self.is_others(owner_epoch):
            await self.until_proven(OTHERS_SECONDS)
            return not await self.is_proven()
        return True

    async def until_written(self, stopped: asyncio.Event) -> None:
        """Wait for another process that may have the state in memory and then writes it: until the log ends with
        another increment than the one that led nowhere, or `stopped` is set."""
        while not stopped.is_set():
            await within(LOOK_SECONDS, stopped)
            newest = await last_now(self._context)
            if newest is not None and newest != self.last and await self.is_proven():
                return

    async def is_others(self, owner_epoch: int | None) -> bool:
        """Say whether the log is the one we wrote to and somebody has claimed the partition since: the state must
        be held, but that owner must not be disturbed. Also true while nobody can say."""
        if owner_epoch is None or self.kept is None:
            return False
        if await looked_up(self._context, self.kept) is not Verdict.SAME:
            return False
        try:
            return await newer_owner(self._context, owner_epoch) is not None
        except SnapreplayError:
            return True

    async def loss(self) -> SnapreplayError | None:
        """Say why nothing can be committed to the chain any more, if the increments topic is to blame; None also
        when nobody answers."""
        kept, topic = self.kept, self._context.increments.topic
        if kept is None:
            return None
        try:
            found = await topic_ids_now(self._context)
        except SnapreplayError:
            return None
        if topic not in found:
            return custody.missing(self._context.expected, kept.last)
        changed = changes([topic], kept.last.topic_ids, found)
        return custody.lost(self._context.expected, changed[0], kept.last) if changed else None

    def replaced(self) -> None:
        """Note that the log was replaced, whatever a broker that lags behind may still say."""
        if self.kept is not None:
            self.kept = replace(self.kept, replaced=True)
        self.proven = False

    @property
    def unsaved(self) -> SnapreplayError | None:
        """The loss if the process ended now, as an error; None when nothing is held."""
        kept = self.kept
        return custody.unsaved(self._context.expected, kept.last) if kept is not None else None

    @property
    def unproven(self) -> SnapreplayError | None:
        """The error to report if the process ended now. None if the log has a proven copy, as far as is known."""
        return self.unsaved if self.kept is not None and not self._was_proven(self.kept) else None

"""Asks beside the processing whether the partition is still ours: after the process stood still, and when another
process seems to have our instance id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.core import refusals
from snapreplay.service.core.kafka_errors import Fenced
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.core.snapshot_policy import spread
from snapreplay.service.live.pipeline import Live
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait, watched
from snapreplay.service.topics.increments import newer_owner
from snapreplay.snapshots.format.records import Claim

log = logging.getLogger("snapreplay.partition")

FENCED = (
    "the transaction coordinator has a newer producer epoch: another producer was started with our transactional id,"
    " or our transaction timed out"
)
COMMIT_TELLS_SECONDS = 0.5  # under load a commit gives the answer before anybody asks
ASK_AGAIN_SECONDS = 1.0
QUIET_SECONDS = 30.0
"""Without a commit for so long the log is asked: nothing else would tell of a newer owner, such as a command."""


class Standstill:
    """One per runner. After a standstill a LIVE partition is doubtful until a commit that began later is answered OK,
    or the log shows no newer claim and the transaction coordinator no other fence. It goes on meanwhile: nothing can
    be committed if another process owns the partition."""

    def __init__(
        self, context: Context, reporter: Reporter, taken: Callable[[Claim], None], fenced: Callable[[Fenced], None]
    ) -> None:
        """Take `taken`, for a newer owner's claim, and `fenced`: none is visible, or our transaction timed out."""
        self._context = context
        self._reporter = reporter
        self._taken = taken
        self._fenced = fenced
        self._live: Live | None = None
        self._since: float | None = None  # loop's clock: what was known before is not enough
        self._asking: asyncio.Task[None] | None = None
        self._quiet_since = 0.0

    def stood_still(self, seconds: float) -> None:
        """Doubt the ownership: the process stood still for this long. Also during a recovery: its claim may not be
        the newest any more when it is LIVE."""
        self._since = asyncio.get_running_loop().time()
        if self._live is not None:
            told = f"the process stood still for {seconds:.1f} s; whether it is still the owner is being checked"
            self._reporter.note(ownership_doubt=told)
            self._ask(self._live)

    def went_live(self, live: Live) -> None:
        self._live = live
        early_seconds = QUIET_SECONDS * spread(self._context.app.app_id, self._context.partition)  # not all at once
        self._quiet_since = asyncio.get_running_loop().time() - early_seconds
        if self._since is not None:
            told = "the process stood still while it recovered; whether it is still the owner is being checked"
            self._reporter.note(ownership_doubt=told)
            self._ask(live)

    def look(self) -> None:
        """Ask whether it is still the owner if it was quiet for a while; to be called every second."""
        live, now = self._live, asyncio.get_running_loop().time()
        if live is None or self._since is not None:
            return
        self._quiet_since = max(self._quiet_since, live.last_commit[1])
        if now - self._quiet_since >= QUIET_SECONDS:
            self._since = self._quiet_since = now
            self._ask(live)

    async def left_live(self) -> None:
        """Stop asking: the next claim comes after the standstill. Until the next phase is entered, the partition is
        not ready."""
        self._reporter.note(ownership_doubt="processing has ended; what comes next is being decided")
        self._live, self._since = None, None
        if self._asking is not None:
            await cancel_and_wait(self._asking)

    def _ask(self, live: Live) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._settle(live))

    async def _settle(self, live: Live) -> None:
        loop, said = asyncio.get_running_loop(), Repeats()
        await asyncio.sleep(COMMIT_TELLS_SECONDS)
        while self._since is not None:
            asked_at = loop.time()
            offset, began = live.last_commit
            if began > self._since:
                break
            try:
                # A newer claim lies after everything that we committed: that need not be read.
                newer = await newer_owner(self._context, max(live.owner_epoch, offset))
                fenced = newer is None and await self._is_fenced(live)
            except SnapreplayError as error:
                line = said.line(f"cannot find out whether it is still ours: {error}", loop.time())
                if line is not None:
                    log.warning("partition %d: %s", self._context.partition, line)
                await asyncio.sleep(ASK_AGAIN_SECONDS)
                continue
            except Exception:  # else the doubt would stay, and nobody would ask any more
                log.exception("partition %d: unexpected error", self._context.partition)
                await asyncio.sleep(ASK_AGAIN_SECONDS)
                continue
            if newer is not None:
                self._taken(newer)
                return
            if fenced:
                self._fenced(Fenced(FENCED))
                return
            if asked_at > self._since:
                break
        self._since = None
        self._reporter.note(ownership_doubt="")

    async def _is_fenced(self, live: Live) -> bool:
        try:
            last = await self._context.cluster.last_fence(self._context.transactional_id)
        except StopError:
            return False  # a cluster that does not tell
        return last is not None and last.lineage != live.lineage


class Suspicion:
    """One per partition and process; one question at a time."""

    def __init__(self, context: Context, refuse: Callable[[SnapreplayError], None]) -> None:
        """Take `refuse`, which is called with the error if there is such a process."""
        self._context = context
        self._refuse = refuse
        self._asking: asyncio.Task[None] | None = None

    def ask(self, owner_epoch: int | None) -> None:
        """Ask whether a newer process has claimed the partition since `owner_epoch`, ours; None: nothing to ask."""
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
            log.warning("partition %d: cannot find out who owns it: %s", self._context.partition, error)
            return
        duplicate = refusals.duplicate_instance(self._context.expected, newer) if newer else None
        if duplicate is not None:
            self._refuse(duplicate)

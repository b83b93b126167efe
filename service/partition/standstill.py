"""The question after the process stood still: is the partition still ours?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.core.kafka_errors import Fenced
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.claims import newer_owner
from snapreplay.snapshots.format.records import Claim

log = logging.getLogger("snapreplay.partition")

FENCED = (
    "the transaction coordinator has a newer producer epoch: another producer was started with our transactional id,"
    " or our transaction timed out"
)
COMMIT_TELLS_SECONDS = 0.5  # under load a commit gives the answer before anybody asks
ASK_AGAIN_SECONDS = 1.0


class Commits(Protocol):
    """The report of a LIVE partition on its last commit."""

    @property
    def last_commit(self) -> tuple[int, float]:
        """Offset of its increment, and when it began, by the loop's clock; -inf before the first one."""

    @property
    def owner_epoch(self) -> int:
        """The offset of its claim."""

    @property
    def lineage(self) -> Lineage:
        """The lineage that its fence gave it."""


class Standstill:
    """One per runner. After a standstill a LIVE partition is doubtful until a commit that began later is answered OK,
    or the log shows no newer claim and the transaction coordinator no other fence. It goes on meanwhile: nothing can
    be committed if another process owns the partition."""

    def __init__(
        self,
        context: Context,
        reporter: Reporter,
        taken: Callable[[Claim], None],
        fenced: Callable[[Fenced], None],
    ) -> None:
        """Take `taken`, which gets a newer owner's claim, and `fenced`: no claim is visible, or our transaction
        timed out."""
        self._context = context
        self._reporter = reporter
        self._taken = taken
        self._fenced = fenced
        self._live: Commits | None = None
        self._since: float | None = None  # loop's clock: what was known before is not enough
        self._asking: asyncio.Task[None] | None = None

    def stood_still(self, seconds: float) -> None:
        """Doubt the ownership: the process stood still for this long. Also during a recovery: its claim may not be
        the newest any more when it is LIVE."""
        self._since = asyncio.get_running_loop().time()
        if self._live is not None:
            self._reporter.doubt(
                f"the process stood still for {seconds:.1f} s; whether it is still the owner is being checked"
            )
            self._ask(self._live)

    def went_live(self, live: Commits) -> None:
        self._live = live
        if self._since is not None:
            self._reporter.doubt(
                "the process stood still while it recovered; whether it is still the owner is being checked"
            )
            self._ask(live)

    async def left_live(self) -> None:
        """Stop asking: the next claim comes after the standstill. Until the next phase is entered, the partition is
        not ready."""
        self._reporter.doubt("processing has ended; what comes next is being decided")
        self._live, self._since = None, None
        if self._asking is not None:
            await cancel_and_wait(self._asking)

    def _ask(self, live: Commits) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._settle(live))

    async def _settle(self, live: Commits) -> None:
        loop, said = asyncio.get_running_loop(), Repeats()
        await asyncio.sleep(COMMIT_TELLS_SECONDS)
        while self._since is not None:
            asked_at = loop.time()
            offset, began = live.last_commit
            if began > self._since:
                break
            try:
                newer = await newer_owner(self._context, self._newest_known(live, offset))
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
        self._reporter.doubt("")

    async def _is_fenced(self, live: Commits) -> bool:
        try:
            last = await self._context.cluster.last_fence(self._context.transactional_id)
        except StopError:
            return False  # a cluster that does not tell
        return last is not None and last.lineage != live.lineage

    @staticmethod
    def _newest_known(live: Commits, committed_offset: int) -> int:
        """Return the newest claim that is known: a newer one lies after everything that we committed, so that need
        not be read."""
        return max(live.owner_epoch, committed_offset)

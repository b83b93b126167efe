"""Asks, beside the processing, whether the partition is still ours and its log still holds what we wrote: after the
process was suspended, and while nothing is committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.core.custody import IncrementsReplaced
from snapreplay.service.core.kafka_errors import Fenced
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.snapshot_policy import spread
from snapreplay.service.live.committer import Committer
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.increments import newer_owner, why_claim_gone, why_gone
from snapreplay.service.topics.reading import Patience, reading
from snapreplay.snapshots.format.records import NO_OFFSET, Claim

log = logging.getLogger("snapreplay.partition")

FENCED = (
    "the transaction coordinator has a newer producer epoch: another producer was started with the same transactional"
    " id, or the transaction timed out"
)
COMMIT_TELLS_SECONDS = 0.5  # under load a commit gives the answer before anybody asks
ASK_AGAIN_SECONDS = 1.0
QUIET_SECONDS = 1.0
"""Commits tell of a newer owner, such as a command. Where none came for this long, the end of the log does."""
LOOK_SECONDS = 15.0
READ_EVERY_LOOKS = 4
"""The end of a log that was cut, and has grown again to the same end, says nothing: once a minute what we wrote last is
read."""
MOMENTS = 12
"""A minute has 12 moments; each partition reads in one of them. Those of one moment share their requests; all at once
would hold up the others."""


class OwnershipWatch:
    """The watch of one incarnation. A doubt ends when a later commit is answered OK, or when the log shows no newer
    claim and the transaction coordinator no other fence. Processing continues meanwhile. While nothing is committed,
    the watch also reads the log: it may have lost its end, and the state in memory may be the only copy.

    Attributes:
        doubt: why another process may own the partition by now; empty: no doubt.
    """

    def __init__(
        self,
        context: Context,
        reporter: Reporter,
        taken: Callable[[Claim], None],
        fenced: Callable[[Fenced], None],
        lost: Callable[[IncrementsReplaced], None],
    ) -> None:
        """Take callbacks: `taken` for a newer owner's claim; `fenced` for a fence without a visible claim, or a
        transaction that timed out; `lost` for a log that does not hold what we wrote last."""
        self._context = context
        self._reporter = reporter
        self._taken = taken
        self._fenced = fenced
        self._lost = lost
        self._committer: Committer | None = None  # while it is LIVE
        self.doubt = ""
        self._since: float | None = None  # loop's clock: what was known before is not enough
        self._asking: asyncio.Task[None] | None = None
        self._share = int(MOMENTS * spread(context.app.app_id, context.partition)) / MOMENTS
        self._last_look = 0
        self._judged_end = NO_OFFSET  # of the increments: nothing above our last commit is a newer owner's claim
        self._owned_at = asyncio.get_running_loop().time()  # an owner since later than this: it has not claimed yet

    def stood_still(self, seconds: float) -> None:
        """Doubt the ownership after a standstill, also one during the recovery."""
        self._since = asyncio.get_running_loop().time()
        if self._committer is not None:
            self._check(self._committer, f"the event loop did not run for {seconds:.1f} s")

    def went_live(self, committer: Committer) -> None:
        self._committer = committer
        self._last_look, self._judged_end = self._look_number(), NO_OFFSET
        if self._since is not None:
            self._check(committer, "the event loop did not run for a while during the recovery")

    @property
    def owned_at(self) -> float:
        """The last time when the partition was known to be ours: the log said so, or a commit began that was answered
        OK. By the loop's clock; before the claim it is when the recovery began."""
        return max(self._owned_at, self._committer.last_began) if self._committer is not None else self._owned_at

    @property
    def is_quiet(self) -> bool:
        """Whether no recent commit has confirmed the owner of the partition, and no question is under way."""
        return (
            self._committer is not None
            and self._since is None
            and self._quiet_seconds(self._committer) >= QUIET_SECONDS
        )

    def end_seen(self, end_offset: int | None, asked_at: float) -> None:
        """Ask the log who owns the partition if it has grown, and from time to time anyway. Call every second.

        `end_offset`: of what is committed in the increments, None if no leader answers; `asked_at`: loop's clock."""
        committer, number = self._committer, self._look_number()
        if committer is None or self._since is not None:
            return
        known = _known_end(committer), self._judged_end
        if end_offset in known and committer.last_began < asked_at:
            self._owned_at = asked_at
        is_due = number != self._last_look and self._quiet_seconds(committer) >= LOOK_SECONDS
        if is_due or (end_offset is not None and end_offset > max(known)):
            self._last_look = number
            self._start(self._look(committer, end_offset))

    def _doubted(self, why: str) -> None:
        self.doubt = why
        self._reporter.note(ownership_doubt=why)

    def _look_number(self) -> int:
        return int(asyncio.get_running_loop().time() / LOOK_SECONDS + READ_EVERY_LOOKS * self._share)

    def _quiet_seconds(self, committer: Committer) -> float:
        return asyncio.get_running_loop().time() - committer.last_began

    async def left_live(self) -> None:
        """Stop asking: the next claim is newer than every doubt. Until the next phase is entered, the partition is
        not ready."""
        self._doubted("processing has ended; what comes next is being decided")
        self._committer, self._since = None, None
        if self._asking is not None:
            await cancel_and_wait(self._asking)

    def _check(self, committer: Committer, why: str) -> None:
        self._doubted(f"{why}; whether it is still the owner is being checked")
        self._start(self._settle(committer))

    def _start(self, asking: Coroutine[None, None, None]) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(asking)
        else:
            asking.close()

    async def _look(self, committer: Committer, end_offset: int | None) -> None:
        has_moved = end_offset is None or end_offset not in (_known_end(committer), self._judged_end)
        if has_moved:
            self._since = self._since or asyncio.get_running_loop().time()
        if self._since is not None:
            await self._settle(committer)
            self._judged_end = end_offset or NO_OFFSET
        elif self._last_look % READ_EVERY_LOOKS == 0:
            try:
                why = await self._why_lost(committer)
            except SnapreplayError:
                why = None  # the next look finds it, too
            except Exception:  # a doubt raised meanwhile must be looked at, or the partition stays unready
                log.exception("partition %d: unexpected error", self._context.partition)
                why = None
            if why is not None or self._since is not None:  # a doubt that came meanwhile found this task asking
                self._since = self._since or asyncio.get_running_loop().time()
                await self._settle(committer)

    async def _has_lost(self, committer: Committer) -> bool:
        """Say whether the log has lost what we wrote last, and tell. A leader that is cut off may lag behind, so it is
        asked again first; the partition is not ready meanwhile."""
        patience, increments = Patience(), self._context.increments
        while (why := await self._why_lost(committer)) is not None and not patience.is_over:
            self._doubted(f"{why}; all brokers are being asked")
            await patience.ask_all(self._context.cluster, increments, _known_end(committer))
            await patience.pause()
        if why is not None:
            self._lost(IncrementsReplaced(f"{why}: the log was cut, or is another one"))
        return why is not None

    async def _why_lost(self, committer: Committer) -> str | None:
        log, chain = self._context.increments, committer.chain
        known_end = _known_end(committer)
        async with reading(self._context.cluster, read_committed=False) as reader:
            bounds = await reader.bounds(log)
            if bounds.end_offset < known_end:
                return (
                    f"{log} ends at offset {bounds.end_offset}, but this process has written up to offset {known_end}"
                )
            # A log is cut from its end: while the newer of both is there, so is the other.
            if chain.last_offset > chain.owner_epoch:
                return await why_gone(reader, log, bounds, FoundIncrement(chain.last, chain.last_offset))
            return await why_claim_gone(reader, log, bounds, chain.owner_epoch, self._context.identity.process_id)

    async def _settle(self, committer: Committer) -> None:
        loop, said = asyncio.get_running_loop(), Repeats()
        await asyncio.sleep(COMMIT_TELLS_SECONDS)
        while self._since is not None:
            asked_at = loop.time()
            if committer.last_began > self._since:
                break
            try:
                # A newer claim lies after everything that we committed: that need not be read.
                offset = _last_offset(committer)
                is_short = await self._is_short(committer)
                newer = None if is_short else await newer_owner(self._context, offset)
                fenced = newer is None and await self._is_fenced(committer)
                if newer is None and not fenced and await self._has_lost(committer):
                    return
                if is_short and not fenced:  # the leader knows more by now
                    continue
            except SnapreplayError as error:
                line = said.line(f"cannot find out whether it is still ours: {error}", loop.time())
                if line is not None:
                    log.warning("partition %d: %s", self._context.partition, line)
                await asyncio.sleep(ASK_AGAIN_SECONDS)
                continue
            except Exception:  # else the doubt would stay without a further question
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
                self._owned_at = asked_at
                break
        self._since = None
        self._doubted("")

    async def _is_short(self, committer: Committer) -> bool:
        """Say whether the log seems to end before our last commit: then it shows no newer claim."""
        known_end = _known_end(committer)
        async with reading(self._context.cluster, read_committed=False) as reader:
            return (await reader.bounds(self._context.increments)).end_offset < known_end

    async def _is_fenced(self, committer: Committer) -> bool:
        try:
            last = await self._context.cluster.last_fence(self._context.transactional_id)
        except StopError:
            return False  # a cluster that does not tell
        return last is not None and last.lineage != committer.lineage


def _last_offset(committer: Committer) -> int:
    """Return the offset of our last increment, or of our claim before the first one."""
    return max(committer.chain.owner_epoch, committer.chain.last_offset)


def _known_end(committer: Committer) -> int:
    """Return where the log ends if there was no write since: behind the marker of our last transaction."""
    return _last_offset(committer) + 2

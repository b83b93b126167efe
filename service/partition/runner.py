"""One partition from its assignment to its end: recover, process, and again after whatever is not final."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from snapreplay.service.clock import wall_seconds
from snapreplay.service.core import located
from snapreplay.service.core.phase import Phase
from snapreplay.service.metrics import Result
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.live import HalfApplied, Live
from snapreplay.service.partition.ownership import newer_owner
from snapreplay.service.partition.recoverer import Recovered, Recoverer, Superseded
from snapreplay.service.partition.report import Reporter, problem_of
from snapreplay.service.partition.snapshots import OnDone
from snapreplay.service.partition.tasks import ended
from snapreplay.service.ports import CommitInDoubt, Fenced, RefusedRecord
from snapreplay.service.status import StatusBoard
from snapreplay.snapshots.errors import Reaction, SnapreplayError, StopError
from snapreplay.snapshots.state.contract import Store
from snapreplay.snapshots.state.store import store_of

log = logging.getLogger("snapreplay.partition")

FENCED_BACKOFF_SECONDS_MAX = 60.0
SAME_BATCH_REFUSED_MAX = 3


class RefusedAgain(StopError):
    """The broker refused the same batch several times: it always will."""


class PartitionRunner:
    """Owns everything of one partition. `run` is its only task; the other methods are called from the same loop."""

    def __init__(
        self, context: Context, board: StatusBoard, on_failed: Callable[[BaseException], None]
    ) -> None:
        """`on_failed` hears what made the partition FAILED."""
        self._context = context
        self._on_failed = on_failed
        self._reporter = Reporter(board, context.partition)
        self._live: Live | None = None
        self._store: Store | None = None
        self._stop = asyncio.Event()
        self._interrupted = asyncio.Event()  # stopped or refused: nothing is waited for any more
        self._final_snapshot = False
        self._refused: SnapreplayError | None = None
        self._stop_at: HalfApplied | None = None
        self._asking: asyncio.Task[None] | None = None
        self._fences = 0
        self._failures_at: tuple[int, int] = (-1, 0)  # batch, refusals in a row
        self._doubts_at: tuple[int, int] = (-1, 0)  # batch, doubtful commits in a row
        self._retries_at: tuple[int, int] = (-1, 0)
        self._doubted = False  # the last incarnation ended in doubt

    @property
    def phase(self) -> Phase:
        return self._reporter.status.phase

    @property
    def store(self) -> Store | None:
        """The live state; None unless LIVE."""
        return self._store if self._live is not None else None

    def request_snapshot(self, reason: str, done: OnDone) -> bool:
        """Ask for a full snapshot. False when the partition is not LIVE."""
        if self._live is None:
            return False
        self._live.snapshots.request(reason, done)
        return True

    def stop(self, *, final_snapshot: bool) -> None:
        """Finish the batch under way and end `run`. With `final_snapshot` a LIVE partition writes one first."""
        self._final_snapshot = final_snapshot
        self._stop.set()
        self._interrupted.set()
        if self._live is not None:
            self._live.stop()

    def refuse(self, error: SnapreplayError) -> None:
        """End processing, or the recovery under way, for good. The partition stays, FAILED."""
        self._refused = self._refused or error
        self._interrupted.set()
        if self._live is not None:
            self._live.stop()

    def suspect(self) -> None:
        """The group threw us out again and again: ask the log whether a process with our instance id has claimed
        the partition. Without input no fence would ever tell."""
        owner_epoch = self._reporter.status.owner_epoch
        if self._live is None or owner_epoch is None:
            return
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask(owner_epoch))

    async def run(self) -> None:
        """Ends when stopped, or when a person must act (FAILED; then it waits for `stop`)."""
        try:
            while not self._stop.is_set():
                await self._incarnation()
        finally:
            if self._asking is not None:
                await ended(self._asking)
            self._reporter.phase(Phase.CLOSED)

    async def _incarnation(self) -> None:
        """One ownership, from the fence to whatever ends it. Every outcome is decided here, by the error's type."""
        try:
            await self._recover_and_process()
        except Superseded as error:
            await self._fenced(error)
        except HalfApplied as error:
            self._stop_at = error
            self._reporter.failed(error.failed)
        except (Fenced, CommitInDoubt) as error:
            await self._after_doubt(error)
        except SnapreplayError as error:
            await self._reacted(error)
        except Exception as error:  # a defect must stop this partition only, and say so
            log.exception("partition %d: unexpected error", self._context.partition)
            await self._fail(error)

    async def _recover_and_process(self) -> None:
        self._raise_refused()
        store = self._store = store_of(self._context.app.state())
        recoverer = Recoverer(self._context, store, self._reporter)
        recovery = asyncio.get_running_loop().create_task(recoverer.recover())
        recovered = await self._unless_interrupted(recovery)
        if recovered is None:
            return
        live = Live(self._context, store, recovered, self._reporter, self._stop_at)
        self._live = live
        if self._doubted:
            self._doubted = False
            live.careful(self._doubts_at[1])
        try:
            self._went_live(live)
            if self._interrupted.is_set():
                live.stop()
            await live.run()
            self._raise_refused()
            if self._final_snapshot:
                await live.hand_over()
        finally:
            self._live = None
            await live.close()

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise self._refused

    async def _unless_interrupted(self, recovery: asyncio.Task[Recovered]) -> Recovered | None:
        """The recovery's result; None when `stop` or `refuse` came first: an interrupted restore loses nothing."""
        interrupted = asyncio.get_running_loop().create_task(self._interrupted.wait())
        try:
            await asyncio.wait([recovery, interrupted], return_when=asyncio.FIRST_COMPLETED)
            if not recovery.done():
                await _given_up(recovery)
                return None
            return recovery.result()
        except asyncio.CancelledError:
            await _given_up(recovery)
            raise
        finally:
            await ended(interrupted)

    def _went_live(self, live: Live) -> None:
        self._fences = 0
        live.report()
        used = self._reporter.status.restore.snapshot if self._reporter.status.restore else None
        self._reporter.update(
            error=None, last_pointed_snapshot_at=used.created_at if used is not None else None
        )
        self._reporter.restore(finished_at=wall_seconds(), progress=None)
        self._reporter.phase(Phase.LIVE)
        status = self._reporter.status
        road = status.restore.road if status.restore else None
        seconds = sum(status.restore.seconds_per_phase.values()) if status.restore else 0.0
        self._context.metrics.restore_ended(Result.SUCCEEDED, road, seconds=seconds)
        log.info(
            "partition %d LIVE at batch %s, owner epoch %s, after %.3f s",
            status.partition,
            status.batch,
            status.owner_epoch,
            seconds,
        )

    async def _fenced(self, error: Superseded) -> None:
        """A newer owner exists. If the group still gives us the partition we try again, ever more slowly; the
        supervisor ends us when it does not."""
        self._context.metrics.fenced()
        self._fences += 1
        self._reporter.phase(Phase.FENCED)
        self._reporter.failed(error)
        log.warning("partition %d: %s", self._context.partition, error)
        await self._sleep(min(FENCED_BACKOFF_SECONDS_MAX, 2.0 ** (self._fences - 1)))

    async def _after_doubt(self, error: Fenced | CommitInDoubt) -> None:
        """A fence may only be a transaction that timed out, and a doubt may be a fence that was not answered as one.
        Before we fence anybody the log says whether somebody claimed, asked again after the pause: a fence comes
        some milliseconds before its claim."""
        self._not_live_any_more()
        if await self._yielded():
            return
        self._doubted = True
        self._doubts_at = self._another(self._doubts_at)
        await self._reacted(error)
        if not self._interrupted.is_set():
            await self._yielded()

    async def _yielded(self) -> bool:
        """Whether a newer owner was found, or the log could not be asked; then all is done that is to be done."""
        owner_epoch = self._reporter.status.owner_epoch
        try:
            newer = None
            if owner_epoch is not None:
                newer = await newer_owner(self._context, owner_epoch)
        except SnapreplayError as unknown:
            await self._reacted(unknown)
            return True
        if newer is None:
            return False
        duplicate = located.duplicate_instance(self._context.expected, newer)
        if duplicate is not None:
            await self._fail(duplicate)
        else:
            await self._fenced(Superseded(newer, self._context.partition))
        return True

    async def _ask(self, owner_epoch: int) -> None:
        try:
            newer = await newer_owner(self._context, owner_epoch)
        except SnapreplayError as error:
            log.warning("partition %d: who owns it? %s", self._context.partition, error)
            return
        duplicate = located.duplicate_instance(self._context.expected, newer) if newer else None
        if duplicate is not None:
            self.refuse(duplicate)

    async def _reacted(self, error: SnapreplayError) -> None:
        log.warning("partition %d: %s: %s", self._context.partition, type(error).__name__, error)
        if error.reaction not in (Reaction.RETRY, Reaction.RELEASE):
            await self._fail(error)
            return
        self._not_live_any_more()
        self._reporter.failed(error)
        refused = self._refused_again(error)
        if refused is not None:
            await self._fail(refused)
            return
        self._retries_at = self._another(self._retries_at)
        settings = self._context.settings.restore
        delay_ms = settings.retry_backoff_ms << min(self._retries_at[1] - 1, 16)
        await self._sleep(min(delay_ms, settings.retry_backoff_max_ms) / 1000)

    def _not_live_any_more(self) -> None:
        """Nobody is to take it for ready while it waits for its next recovery."""
        if self.phase is Phase.LIVE:
            self._reporter.phase(Phase.FENCING)

    def _refused_again(self, error: SnapreplayError) -> RefusedAgain | None:
        """A deterministic refusal is not doubt: the same batch is not tried for ever."""
        if not isinstance(error, RefusedRecord):
            return None
        batch, count = self._failures_at = self._another(self._failures_at)
        if count < SAME_BATCH_REFUSED_MAX:
            return None
        return RefusedAgain(
            f"the batch after {batch} was refused {count} times: {error.message}",
            hint=error.hint or "raise the topic's limit, or make the handler's outputs fit it",
            **error.facts,
        )

    def _another(self, at: tuple[int, int]) -> tuple[int, int]:
        """(batch, times in a row), counted on; from 1 again when a batch was committed since."""
        batch = self._reporter.status.batch or 0
        return (batch, at[1] + 1 if at[0] == batch else 1)

    async def _fail(self, error: BaseException) -> None:
        problem = problem_of(error)
        self._context.metrics.failed(problem.kind, problem.reaction)
        self._reporter.failed(error)
        self._reporter.phase(Phase.FAILED)
        log.error("partition %d FAILED: %s", self._context.partition, error)
        self._on_failed(error)
        await self._stop.wait()

    async def _sleep(self, seconds: float) -> None:
        """Back off, but end at once when stopped or refused."""
        try:
            await asyncio.wait_for(self._interrupted.wait(), seconds)
        except TimeoutError:
            return


async def _given_up(recovery: asyncio.Task[Recovered]) -> None:
    """End it; if it has just succeeded all the same, its producer is ours to discard."""
    await ended(recovery)
    if not recovery.cancelled() and recovery.exception() is None:
        await recovery.result().producer.discard()

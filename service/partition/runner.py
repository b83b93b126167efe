"""One partition from its assignment to its end: recover, process, and again after whatever is not final."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from snapreplay.service.clock import wall_seconds
from snapreplay.service.core import stops
from snapreplay.service.core.caution import Caution, only_record, records_in
from snapreplay.service.core.kept import Kept
from snapreplay.service.core.phase import Phase
from snapreplay.service.metrics import Result
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.live import HalfApplied, Live
from snapreplay.service.partition.ownership import StandBack, newer_owner
from snapreplay.service.partition.recoverer import Recovered, Recoverer, Superseded
from snapreplay.service.partition.report import Reporter, problem_of
from snapreplay.service.partition.snapshot_keeper import OnDone
from snapreplay.service.partition.tasks import ended
from snapreplay.service.ports import CommitInDoubt, Fenced, RefusedRecord, RefusedTopic
from snapreplay.service.status import RestoreStatus, StatusBoard
from snapreplay.snapshots.errors import Reaction, RecordError, SnapreplayError, StopError
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.state.contract import Store
from snapreplay.snapshots.state.store import store_of

log = logging.getLogger("snapreplay.partition")

REFUSED_MAX = 3  # of a batch that no record is to blame for
LIMIT_HINT = "raise the topic's limit, or make the handler's outputs fit it"


class RefusedAgain(StopError):
    """The broker refused the same batch several times, and no record of it is to blame."""


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
        self._stand_back = StandBack(context)
        self._retries_at: tuple[int, int] = (-1, 0)  # batch, failures in a row
        self._kept: Kept | None = None  # what the last incarnation left in the store
        self._doubtful: Increment | None = None  # its batch that was not answered OK
        self._caution = Caution()
        self._refused_record: RecordError | None = None

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

    def given_again(self) -> None:
        """A new assignment holds the partition, as the one before did."""
        self._stand_back.given_again()

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
        match await self._end_of_ownership():
            case None:
                return
            case Superseded() as error:
                await self._fenced(error)
            case HalfApplied() as error:
                self._stop_at = error
                self._reporter.failed(error.failed)
            case Fenced() | CommitInDoubt() as error:
                await self._after_doubt(error)
            case RefusedRecord() as error:
                await self._after_refusal(error)
            case SnapreplayError() as error:
                await self._reacted(error)
            case error:
                await self._fail(error)

    async def _end_of_ownership(self) -> Exception | None:
        """What ended it; None: `stop`. Without its traceback, whose frames hold the state."""
        try:
            await self._recover_and_process()
        except SnapreplayError as error:
            return error.with_traceback(None)
        except Exception as error:  # a defect must stop this partition only, and say so
            log.exception("partition %d: unexpected error", self._context.partition)
            return error.with_traceback(None)
        return None

    async def _recover_and_process(self) -> None:
        self._raise_refused()
        kept, self._kept = self._kept, None
        if kept is None:
            self._forget_state()
        if self._store is None:  # an empty one is false
            self._store = store_of(self._context.app.state())
        store = self._store
        recoverer = Recoverer(self._context, store, self._reporter, kept)
        recovery = asyncio.get_running_loop().create_task(recoverer.recover())
        recovered = await self._unless_interrupted(recovery)
        if recovered is None:
            return
        live = Live(self._context, store, recovered, self._reporter, self._stop_at)
        self._live = live
        if self._caution.times:
            live.careful(self._caution, self._refused_record)
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
            self._kept, self._doubtful = live.kept(), live.doubtful

    def _forget_state(self) -> None:
        """At once: the collector would come late, and there would be two of them in memory."""
        store, self._store, self._kept = self._store, None, None
        if store is not None and store.keeps_changes:
            store.clear()

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
        live.report()
        restore = self._reporter.status.restore
        if restore is not None and restore.warm is None:
            used = restore.snapshot
            self._reporter.update(last_pointed_snapshot_at=used.created_at if used else None)
        self._reporter.update(error=None)
        self._reporter.restore(finished_at=wall_seconds(), progress=None)
        self._reporter.phase(Phase.LIVE)
        status = self._reporter.status
        restore = status.restore or RestoreStatus(attempt=0, started_at=0.0)
        road = "warm" if restore.warm else restore.road
        seconds = sum(restore.seconds_per_phase.values())
        self._context.metrics.restore_ended(Result.SUCCEEDED, road, seconds=seconds)
        log.info(
            "partition %d LIVE at batch %s, owner epoch %s, after %.3f s by %s",
            status.partition,
            status.batch,
            status.owner_epoch,
            seconds,
            f"memory ({restore.warm})" if restore.warm else road or "snapshot",
        )

    async def _fenced(self, error: Superseded) -> None:
        """A newer owner exists. We fence it in return only when the group's coordinator gives us the partition; the
        supervisor ends us when our own view of the group says that it is another's."""
        self._forget_state()  # it will be another one when it is ours again
        self._context.metrics.fenced()
        self._reporter.phase(Phase.FENCED)
        reported = self._stand_back.taken(error.newer, error)
        self._reporter.failed(reported)
        log.warning("partition %d: %s", self._context.partition, reported)
        await self._stand_back.until_given(self._interrupted)

    async def _after_doubt(self, error: Fenced | CommitInDoubt) -> None:
        """A fence may only be a transaction that timed out, and a doubt may be a fence that was not answered as one.
        Before we fence anybody the log says whether somebody claimed, asked again after the pause: a fence comes
        some milliseconds before its claim."""
        self._not_live_any_more()
        if await self._yielded():
            return
        if self._doubtful is not None:
            self._caution = self._caution.doubted(self._doubtful)
        await self._reacted(error)
        if not self._interrupted.is_set():
            await self._yielded()

    async def _after_refusal(self, error: RefusedRecord) -> None:
        """A deterministic failure is not doubt: the batch is cut down to the record that the broker does not take.
        That one is then a record which cannot be applied, and the policy decides."""
        failed = self._doubtful
        if failed is None:
            await self._reacted(error)
            return
        self._caution = self._caution.refused(failed)
        blameless = isinstance(error, RefusedTopic) or records_in(failed) == 0
        if self._is_refused(failed) or (blameless and self._caution.times >= REFUSED_MAX):
            await self._fail(_refused_again(failed, error))
            return
        record_id = only_record(failed, self._context.partition)
        if record_id is not None and not blameless:
            self._refused_record = RecordError(
                f"the broker refuses what its handler makes of {record_id}: {error.message}",
                record_id=record_id,
                hint=error.hint or LIMIT_HINT,
                **error.facts,
            )
        await self._reacted(error)

    def _is_refused(self, failed: Increment) -> bool:
        """Whether it is the batch of nothing but a record that was refused before: its dead letter is refused, too."""
        known = self._refused_record
        return known is not None and known.record_id == only_record(failed, self._context.partition)

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
        duplicate = stops.duplicate_instance(self._context.expected, newer)
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
        duplicate = stops.duplicate_instance(self._context.expected, newer) if newer else None
        if duplicate is not None:
            self.refuse(duplicate)

    async def _reacted(self, error: SnapreplayError) -> None:
        log.warning("partition %d: %s: %s", self._context.partition, type(error).__name__, error)
        if error.reaction not in (Reaction.RETRY, Reaction.RELEASE):
            await self._fail(error)
            return
        self._not_live_any_more()
        self._reporter.failed(error)
        self._retries_at = self._another(self._retries_at)
        settings = self._context.settings.restore
        delay_ms = settings.retry_backoff_ms << min(self._retries_at[1] - 1, 16)
        await self._sleep(min(delay_ms, settings.retry_backoff_max_ms) / 1000)

    def _not_live_any_more(self) -> None:
        """Nobody is to take it for ready while it waits for its next recovery."""
        if self.phase is Phase.LIVE:
            self._reporter.phase(Phase.FENCING)

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


def _refused_again(failed: Increment, error: RefusedRecord) -> RefusedAgain:
    return RefusedAgain(
        f"batch {failed.batch} was refused again and again: {error.message}",
        hint=error.hint or LIMIT_HINT,
        **error.facts,
    )


async def _given_up(recovery: asyncio.Task[Recovered]) -> None:
    """End it; if it has just succeeded all the same, its producer is ours to discard."""
    await ended(recovery)
    if not recovery.cancelled() and recovery.exception() is None:
        await recovery.result().producer.discard()

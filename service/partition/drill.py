"""A drill: the recovery of a LIVE partition beside its processing, without a fence, into a store that is discarded."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import msgspec
from msgspec.structs import replace

from snapreplay.counted import counted
from snapreplay.errors import RetryableError, SnapreplayError, StopError
from snapreplay.service.clock import wall_time
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.restore_plan import Drill, DrillState
from snapreplay.service.control.status import RecoveryStatus
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.snapshot_policy import spread
from snapreplay.service.live.pipeline import Live
from snapreplay.service.recovery.examine import Examiner
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import run_cooperatively, throttled
from snapreplay.service.runtime.free_memory import ROOT, available_bytes, memory_of
from snapreplay.service.runtime.progress import RestoreRecord
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait, turn_in, watched
from snapreplay.state.composite import Store

log = logging.getLogger("snapreplay.partition")

_freeing: set[asyncio.Task[None]] = set()  # a store outlives the drills of an incarnation until it is empty

_ENDED = {DrillState.SUCCEEDED: OperationState.SUCCEEDED}


class GivenUp(RetryableError):
    """The drill ended without a verdict.

    Safe: The partition continues, and nothing in its log was changed. You may start another drill at any time.
    """


class RestoreDiffers(StopError):
    """A drill did not reach the committed state, or not from the newest snapshot."""


class _Request(msgspec.Struct):
    """Who hears of a drill, None for one on schedule or withdrawn; and why it is given up when it is cancelled."""

    done: OnDone | None
    why: str = "the partition left LIVE"

    def answer(self, state: OperationState, snapshot_id: str | None, said: str) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(state, snapshot_id, said)


class Drills:
    """The drills of a partition, one at a time. Lives and dies with one LIVE incarnation."""

    def __init__(self, context: Context, live: Live, store: Store, reporter: Reporter) -> None:
        """Take the `store` of the processing: a drill needs as much memory again."""
        self._context, self._live, self._store, self._reporter = context, live, store, reporter
        self._request = _Request(None)  # of the drill in progress
        self._task: asyncio.Task[None] | None = None
        self._schedule = asyncio.get_running_loop().create_task(self._scheduled())

    def ask(self, done: OnDone) -> None:
        """Begin a drill, unless one is in progress."""
        if self._is_running:
            done(OperationState.FAILED, None, "a drill of the partition is in progress")
        else:
            self._begin(done)

    def withdraw(self, done: OnDone) -> None:
        """Give up the drill that `done` asked for."""
        if done == self._request.done:
            self._request.done = None
            self._give_up("it was cancelled")

    def paused(self) -> None:
        """Give up the drill in progress: a paused partition does nothing."""
        self._give_up("the partition was paused")

    async def close(self) -> None:
        """Give up the drill in progress."""
        await cancel_and_wait(self._schedule)
        if self._task is not None:
            await cancel_and_wait(self._task)

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def _give_up(self, why: str) -> None:
        self._request.why = why
        if self._task is not None:
            self._task.cancel()

    async def _scheduled(self) -> None:
        every_seconds = self._context.settings.restore.drill_every_seconds
        while every_seconds:
            share = spread(self._context.app.app_id, self._context.partition)
            await asyncio.sleep(turn_in(every_seconds, share, every_seconds / 2))
            if not self._is_running:
                self._begin(None)

    def _begin(self, done: OnDone | None) -> None:
        self._request = request = _Request(done)
        self._task = asyncio.get_running_loop().create_task(self._run(request))
        self._task.add_done_callback(partial(_ended, request))

    async def _run(self, request: _Request) -> None:
        began = Drill(DrillState.RUNNING, wall_time())
        self._reporter.note(drill=began)
        ended = msgspec.structs.replace(began, state=DrillState.GIVEN_UP, detail=request.why)
        try:
            ended = await self._drilled(began)
        except RetryableError as error:
            ended = msgspec.structs.replace(ended, detail=str(error))
        except SnapreplayError as error:
            ended = msgspec.structs.replace(ended, state=DrillState.FAILED, detail=error.message)
        except asyncio.CancelledError:
            ended = msgspec.structs.replace(ended, detail=request.why)
            raise
        except Exception as error:  # a defect here must not end the partition
            log.exception("partition %d: unexpected error", self._context.partition)
            ended = msgspec.structs.replace(ended, state=DrillState.FAILED, detail=repr(error))
        finally:
            self._end(msgspec.structs.replace(ended, finished_at=wall_time()), request)

    def _end(self, drill: Drill, request: _Request) -> None:
        number = self._context.partition
        self._reporter.note(drill=drill)
        state = DrillState(drill.state)
        self._context.metrics.drill_ended(state, drill.seconds if state is DrillState.SUCCEEDED else None)
        said = _said(drill)
        if state is DrillState.FAILED:
            log.error(
                "partition %d: the drill failed: %s; a snapshot is taken now, and processing continues", number, said
            )
            self._live.snapshots.mend()
        else:
            log.info("partition %d: drill %s: %s", number, state.replace("_", " "), said)
        request.answer(_ENDED.get(state, OperationState.FAILED), drill.snapshot_id, said)

    async def _drilled(self, began: Drill) -> Drill:
        if self._live.pausing.is_paused:
            raise GivenUp("the partition is paused")
        context = replace(self._context, restores=asyncio.Semaphore(1))
        async with context.spare_state:
            check_memory(self._store)
            store = context.app.new_store()
            record = RestoreRecord()
            examiner = Examiner(context, store, record)
            share = context.settings.restore.drill_share
            try:
                with throttled(share) as throttle:
                    refusal = await examiner.examine_beside_owner(self._live.last.batch)
            finally:
                freeing = _freed_later(store, share)  # a cancel does not wait for it
                await examiner.close()
            await asyncio.shield(freeing)
            restore = record.recovery or RecoveryStatus()
            self._check(refusal, restore, examiner.last)
            return self._measured(began, restore, examiner.found, throttle.rested_seconds)

    def _check(self, refusal: SnapreplayError | None, restore: RecoveryStatus, found: FoundIncrement | None) -> None:
        """Raise what is wrong with the log, or GivenUp: it has gone on too far to say."""
        reason = refusal or restore.fallback_reason
        if reason and self._is_overtaken(found):
            raise GivenUp(f"the log was trimmed behind a new snapshot meanwhile: {reason}")
        if refusal is not None:
            raise refusal
        if restore.fallback_reason is not None:
            where = f"snapshot {restore.fallback_from}: " if restore.fallback_from else ""
            raise RestoreDiffers(f"a recovery would fall back: {where}{restore.fallback_reason}")

    def _is_overtaken(self, found: FoundIncrement | None) -> bool:
        """Say whether the newest snapshot at its beginning is not kept any more."""
        began_with = found.increment.pointers[:1] if found is not None else []
        kept = self._live.last.pointers
        return bool(kept) and (not began_with or began_with[0] not in kept)

    def _measured(self, began: Drill, restore: RecoveryStatus, found: FoundIncrement, rested_seconds: float) -> Drill:
        spent, rates = restore.seconds_per_phase, self._context.rates
        worked = spent.get(Phase.LOADING, 0.0) + spent.get(Phase.ADVANCING, 0.0) - rested_seconds
        return msgspec.structs.replace(
            began,
            state=DrillState.SUCCEEDED,
            batch=found.increment.batch,
            snapshot_id=restore.snapshot.snapshot_id if restore.snapshot else None,
            mode=restore.mode,
            entries=restore.entries,
            digest=restore.proof.computed if restore.proof else None,
            seconds=rates.owning_seconds + max(0.0, worked),
            predicted_seconds=rates.predicted_seconds(restore),
            rested_seconds=rested_seconds,
        )


def _ended(request: _Request, task: asyncio.Task[None]) -> None:
    if task.cancelled():  # perhaps before its first step; another drill may have begun since
        request.answer(OperationState.FAILED, None, request.why)


def _freed_later(store: Store, share: float) -> asyncio.Task[None]:
    freeing = asyncio.get_running_loop().create_task(_freed(store, share))
    _freeing.add(freeing)
    freeing.add_done_callback(_freeing.discard)
    return watched(freeing, "freeing the state of a drill")


async def _freed(store: Store, share: float) -> None:
    with throttled(share):
        await run_cooperatively(store.freeing())


def check_memory(store: Store) -> None:
    """Raise GivenUp if a second copy of the state would not find a place."""
    needed = memory_of(store.size_bytes, store.digest.count)
    available = available_bytes(ROOT)
    if available is not None and needed > available:
        raise GivenUp(f"a second copy of the state takes about {needed:,} bytes, and {available:,} are free")


def _said(drill: Drill) -> str:
    if drill.state != DrillState.SUCCEEDED:
        return drill.detail
    return (
        f"batch {drill.batch}, {counted(drill.entries, 'entry')}: its digest is the recorded one; a restore takes"
        f" {drill.seconds:.2f} s, {drill.predicted_seconds:.2f} s were predicted"
    )

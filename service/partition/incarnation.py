"""One ownership of a partition: recover, then process. What its end means, the runner decides."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from snapreplay.errors import SnapreplayError
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core import refusals
from snapreplay.service.core.batch_failures import BatchFailures, HalfApplied
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.ownership import Ended, Ownership
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.live.pipeline import Live
from snapreplay.service.live.snapshot_scheduler import OnDone
from snapreplay.service.live.value_check import ValueChecks, named
from snapreplay.service.partition.memory import Memory
from snapreplay.service.partition.retry import Retry
from snapreplay.service.partition.standstill import Standstill
from snapreplay.service.partition.takeover_backoff import TakeoverBackoff
from snapreplay.service.partition.topics_seen import TopicChanges, TopicsSeen, tell
from snapreplay.service.recovery.driver import Recovered, RecoveryDriver
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.records import Claim, Increment
from snapreplay.state.contract import Store
from snapreplay.state.values import StoredValueUnreadable

log = logging.getLogger("snapreplay.partition")


class Incarnation:
    """And what is handed on from each to the next."""

    def __init__(self, context: Context, board: StatusBoard) -> None:
        self._context = context
        self._reporter = Reporter(board, context.partition)
        self._live: Live | None = None
        self._limit: asyncio.Timeout | None = None  # while it is LIVE
        self._driver: RecoveryDriver | None = None
        self._memory = Memory(context)
        self._ownership = _first(context)
        self._owner_epoch: int | None = None
        self._batch: int | None = None  # the newest that is known to be committed
        self._stop = asyncio.Event()
        self._interrupted = asyncio.Event()  # stopped or refused: nothing is waited for any more
        self._final_snapshot = False
        self._found: SnapreplayError | None = None  # while it was LIVE
        self._takeover = TakeoverBackoff(context)
        self._standstill = Standstill(context, self._reporter, self._taken, self._end_with)
        self._retry = Retry()
        self._values = ValueChecks(context, self._reporter)
        self._topics_seen = self._new_topics_seen()
        self._failed: Increment | None = None  # its batch that was not answered OK

    @property
    def store(self) -> Store | None:
        """The live state; None unless LIVE."""
        return self._memory.store if self._live is not None else None

    def request_snapshot(self, reason: str, done: OnDone) -> bool:
        """Ask for a full snapshot. False when the partition is not LIVE."""
        if self._live is None:
            return False
        self._live.snapshots.request(reason, done)
        return True

    def refuse(self, error: SnapreplayError) -> None:
        """End processing, or the recovery under way. The partition stays, FAILED; for a DuplicateInstance FENCED,
        until the group gives it to us again. Who refuses it logs the hint: it is the same for all partitions."""
        if isinstance(error, refusals.DuplicateInstance):
            self._takeover.forget_assignment()
        # When a process of our name has gone, what else refuses us is still true.
        known = self._ownership.refused
        new = known is None or isinstance(known, refusals.DuplicateInstance)
        self._set(refused=error if new else known)
        if self._live is not None:
            self._live.stop()

    def cut_off(self) -> None:
        """After `stop`, when the time to end is over: the work under way is given up. The state in memory is not, as
        long as it may be the only copy."""
        if self._limit is not None and not self._ownership.is_holding:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def _set(self, ownership: Ownership | None = None, **known: Any) -> None:
        """Replace what is known of the ownerships. Stopped or refused, nothing is waited for; but what is held is
        written first."""
        self._ownership = replace(ownership or self._ownership, **known)
        ends = self._stop.is_set() or self._ownership.refused is not None
        if ends and not self._ownership.is_holding:
            self._interrupted.set()
        else:
            self._interrupted.clear()

    async def _own(self) -> Ended:
        """One ownership, and what ended it."""
        self._failed = None
        try:
            await self._recover_and_process()
        except StoredValueUnreadable as error:
            return self._ended(named(error, self._context))
        except HalfApplied as error:
            self._reporter.failed(error.failed)
            return self._ended(error)
        except SnapreplayError as error:
            return self._ended(error)
        except Exception as error:  # a defect must stop this partition only, and say so
            log.exception("partition %d: unexpected error", self._context.partition)
            return self._ended(error)
        return self._ended(None)

    def _ended(self, error: Exception | None) -> Ended:
        """Without its traceback, whose frames hold the state."""
        return Ended(
            error.with_traceback(None) if error is not None else None,
            asyncio.get_running_loop().time(),
            self._owner_epoch,
            self._batch,
            self._failed,
        )

    async def _recover_and_process(self) -> None:
        self._raise_refused()
        store, kept = self._memory.take()
        recovered = await self._recovered(store, kept)
        if recovered is None:
            return
        self._memory.proven = None  # the log has just led to it
        live = Live(self._context, store, recovered, self._reporter, self._ownership.stop_at)
        self._live, self._found = live, None  # what was found of the one before is over
        self._topics_seen = self._new_topics_seen()
        failures = self._ownership.failures.recovered(live.topic_ids)
        self._set(failures=failures)
        if failures.bisection.times:
            live.careful(failures.bisection, failures.record)
        try:
            await self._process_in_time(live, store)
        except SnapreplayError as error:
            if live.lost is None:
                raise
            raise live.lost from error
        finally:
            self._live = None
            self._memory.recoverable = self._reporter.is_recoverable
            try:
                await self._standstill.left_live()
                await self._values.end()
            finally:
                try:
                    await live.close()
                finally:  # cancelled or not: it is the state that counts
                    self._memory.kept, self._failed = live.kept(), live.doubtful
                    self._batch = live.last.batch

    async def _process_in_time(self, live: Live, store: Store) -> None:
        """Only the work is cut off; what it leaves in memory is always noted."""
        limit = self._limit = asyncio.timeout(None)
        try:
            async with limit:
                await self._process(live, store)
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("partition %d did not end in time and is cut off", self._context.partition)
        finally:
            self._limit = None

    async def _process(self, live: Live, store: Store) -> None:
        await self._values.sample(store)
        self._went_live(live)
        self._values.begin(self._end_with)
        if self._interrupted.is_set() or self._ownership.is_holding:
            live.stop()
        await live.run()
        self._raise_refused()
        self._raise_found()
        await live.leave_digest()
        unsafe = self._ownership.is_holding or not self._reporter.is_recoverable
        if self._final_snapshot or unsafe:
            await live.hand_over(even_unchanged=unsafe)

    async def _recovered(self, store: Store, kept: RetainedState | None) -> Recovered | None:
        driver = self._driver = RecoveryDriver(
            self._context, store, self._reporter, kept, insists=self._ownership.is_holding
        )
        try:
            return await driver.recover_unless(self._interrupted)
        finally:
            self._driver = None
            self._memory.kept, self._memory.last = driver.kept, driver.last
            if driver.last is not None:
                self._batch = driver.last.increment.batch
            if driver.owner_epoch is not None:
                self._owner_epoch = driver.owner_epoch

    def _raise_refused(self) -> None:
        refused = self._ownership.refused
        if refused is not None and not self._ownership.is_holding:
            raise refused

    def _raise_found(self) -> None:
        found, self._found = self._found, None
        if found is not None:
            raise found

    def _end_with(self, found: SnapreplayError) -> None:
        """The batch under way is finished, then this ends it."""
        if self._live is not None:
            self._found = found
            self._live.stop()

    def _taken(self, newer: Claim) -> None:
        """The log shows a newer owner while we are LIVE."""
        duplicate = refusals.duplicate_instance(self._context.expected, newer)
        if duplicate is not None:
            self.refuse(duplicate)
        else:
            self._end_with(Superseded(newer, self._context.partition))

    def _went_live(self, live: Live) -> None:
        live.report()
        self._standstill.went_live(live)
        self._reporter.went_live(self._context.metrics)
        if self._retry.under_way:
            live.at_work = self._retry.succeeded

    def _new_topics_seen(self) -> TopicsSeen:
        """Each incarnation is told anew."""
        return TopicsSeen(self._context, self._inputs_changed, self._own_topics_changed)

    def _inputs_changed(self, changes: TopicChanges) -> None:
        """Every second for as long as it is so. The partition is LIVE."""
        if self._live is not None:
            self._live.doubt_inputs("; ".join(map(str, changes)))

    def _own_topics_changed(self, changes: TopicChanges) -> None:
        """T-ZengLiang or T-QuanLiang is missing or is another topic than the chain records; nothing: they are again
        what is recorded. Once per change. The partition is LIVE."""
        if self._live is not None:
            tell(self._live, self._context, changes)


def _first(context: Context) -> Ownership:
    restore = context.settings.restore
    return Ownership(
        context.expected,
        restore.retry_backoff_ms,
        restore.retry_backoff_max_ms,
        BatchFailures(context.partition),
    )

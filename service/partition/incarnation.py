"""One ownership of a partition: recover, then process. What its end means, the runner decides."""

from __future__ import annotations

import asyncio
import logging

from snapreplay.service.core import stops
from snapreplay.service.core.kept import Kept
from snapreplay.service.partition.batch_failures import HalfApplied, Refusals
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.live import Live
from snapreplay.service.partition.memory import Memory
from snapreplay.service.partition.ownership import StandBack
from snapreplay.service.partition.recoverer import Recovered, Recoverer, Superseded
from snapreplay.service.partition.report import Reporter
from snapreplay.service.partition.retry import Retry
from snapreplay.service.partition.snapshot_keeper import OnDone
from snapreplay.service.partition.standstill import Standstill
from snapreplay.service.partition.topics_seen import Changes, TopicsSeen, tell
from snapreplay.service.partition.value_check import ValueChecks
from snapreplay.service.status import StatusBoard
from snapreplay.snapshots.errors import SnapreplayError
from snapreplay.snapshots.format.records import Claim, Increment
from snapreplay.snapshots.state.contract import Store

log = logging.getLogger("snapreplay.partition")


class Incarnation:
    """And what is handed on from each to the next."""

    def __init__(self, context: Context, board: StatusBoard) -> None:
        self._context = context
        self._reporter = Reporter(board, context.partition)
        self._live: Live | None = None
        self._limit: asyncio.Timeout | None = None  # while it is LIVE
        self._recoverer: Recoverer | None = None
        self._memory = Memory(context)
        self._holding = False  # asked to end, but the state is nowhere else
        self._interrupted = asyncio.Event()  # stopped or refused: nothing is waited for any more
        self._final_snapshot = False
        self._refused: SnapreplayError | None = None
        self._found: SnapreplayError | None = None  # while it was LIVE
        self._stop_at: HalfApplied | None = None
        self._stand_back = StandBack(context)
        self._standstill = Standstill(context, self._reporter, self._taken, self._end_with)
        self._retry = Retry()
        self._values = ValueChecks(context, self._reporter)
        self._topics_seen = self._new_topics_seen()
        self._doubtful: Increment | None = None  # its batch that was not answered OK
        self._refusals = Refusals(context.partition)

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
        if isinstance(error, stops.DuplicateInstance):
            self._stand_back.forget_assignment()
        self._refused = self._refused or error
        self._interrupted.set()
        if self._live is not None:
            self._live.stop()

    def cut_off(self) -> None:
        """After `stop`, when the time to end is over: the work under way is given up. The state in memory is not, as
        long as it may be the only copy."""
        if self._limit is not None and not self._holding:
            self._limit.reschedule(asyncio.get_running_loop().time())

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
        store, kept = self._memory.take()
        recovered = await self._recovered(store, kept)
        if recovered is None:
            return
        self._memory.proven = None  # the log has just led to it
        live = Live(self._context, store, recovered, self._reporter, self._stop_at)
        self._live, self._found = live, None  # what was found of the one before is over
        self._topics_seen = self._new_topics_seen()
        self._refusals.recovered(live.topic_ids)
        if self._refusals.caution.times:
            live.careful(self._refusals.caution, self._refusals.record)
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
                    self._memory.kept, self._doubtful = live.kept(), live.doubtful

    async def _process_in_time(self, live: Live, store: Store) -> None:
        """Only the work is cut off; what it leaves in memory is always noted."""
        limit = self._limit = asyncio.timeout(None)
        try:
            async with limit:
                await self._process(live, store)
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("partition %d did not end in time: it is cut off", self._context.partition)
        finally:
            self._limit = None

    async def _process(self, live: Live, store: Store) -> None:
        await self._values.sample(store)
        self._went_live(live)
        self._values.begin(self._end_with)
        if self._interrupted.is_set() or self._holding:
            live.stop()
        await live.run()
        self._raise_refused()
        self._raise_found()
        await live.leave_digest()
        unsafe = self._holding or not self._reporter.is_recoverable
        if self._final_snapshot or unsafe:
            await live.hand_over(even_unchanged=unsafe)

    async def _recovered(self, store: Store, kept: Kept | None) -> Recovered | None:
        recoverer = self._recoverer = Recoverer(
            self._context, store, self._reporter, kept, insists=self._holding
        )
        try:
            return await recoverer.recover_unless(self._interrupted)
        finally:
            self._recoverer = None
            self._memory.kept, self._memory.last = recoverer.kept, recoverer.last

    def _raise_refused(self) -> None:
        if self._refused is not None and not self._holding:
            raise self._refused

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
        duplicate = stops.duplicate_instance(self._context.expected, newer)
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

    def _inputs_changed(self, changes: Changes) -> None:
        """Every second for as long as it is so. The partition is LIVE."""
        if self._live is not None:
            self._live.doubt_inputs("; ".join(map(str, changes)))

    def _own_topics_changed(self, changes: Changes) -> None:
        """T-ZengLiang or T-QuanLiang is missing or is another topic than the chain records; nothing: they are again
        what is recorded. Once per change. The partition is LIVE."""
        if self._live is not None:
            tell(self._live, self._context, changes)

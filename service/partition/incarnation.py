"""One ownership of a partition: recover, then process. What its end means, the runner decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from snapreplay.counted import some
from snapreplay.errors import SnapreplayError
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.status import RecoveryStatus
from snapreplay.service.core import refusals
from snapreplay.service.core.custody import lost
from snapreplay.service.core.inspected import TopicChange, changes
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.ownership import Ended
from snapreplay.service.live.pipeline import Live
from snapreplay.service.partition.drill import Drills
from snapreplay.service.partition.lifecycle import Lifecycle, RetryRequest
from snapreplay.service.partition.ownership_watch import OwnershipWatch
from snapreplay.service.recovery.driver import Recovered, RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import Pauses, run_cooperatively
from snapreplay.service.runtime.rates import Worked
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import asked_to_end
from snapreplay.service.topics.requirements import limits_now
from snapreplay.snapshots.format.records import Claim, Paused
from snapreplay.state.composite import Store
from snapreplay.state.values import StoredValueUnreadable

TopicChanges = tuple[TopicChange, ...]


class TopicsSeen:
    """Compares the topics of the cluster with the ids that the chain records. One per incarnation."""

    def __init__(self, context: Context) -> None:
        self._own = (context.increments.topic, context.snapshots.topic)
        self._reported: TopicChanges = ()
        self._before: TopicChanges = ()

    def inputs(self, recorded: Mapping[str, str], found: Mapping[str, str]) -> TopicChanges:
        """Return the inputs whose id differs from the recorded one. Each time: comparing them again costs little."""
        return changes(sorted(recorded.keys() - set(self._own)), recorded, found)

    def is_as_before(self, recorded: Mapping[str, str], found: Mapping[str, str]) -> bool:
        """Say whether every topic has its recorded id, and no difference was noted before. A cheap test: it runs each
        second for each partition."""
        return not (self._before or self._reported) and recorded.items() <= found.items()

    def own(self, recorded: Mapping[str, str], found: Mapping[str, str]) -> TopicChanges | None:
        """Return the own topics whose id differs, once per change; None: no news. Two looks in a row must agree: a
        broker that lags behind the controllers may not know a new topic yet."""
        before, self._before = self._before, changes(self._own, recorded, found)
        if self._before != before or self._before == self._reported:
            return None
        self._reported = self._before
        return self._reported


log = logging.getLogger("snapreplay.partition")

SAMPLE_EACH_SHARD = 2


async def check_values(store: Store) -> None:
    """Read a part of each shard of a restored state, before anything is written: digests prove only bytes, and the app
    may declare a type that differs from the stored one.

    Raises:
        StoredValueUnreadable, UnknownTimer: the partition must not be LIVE.
    """
    await run_cooperatively(store.refusing_pending())
    pauses = Pauses()
    for _ in store.checking(SAMPLE_EACH_SHARD):
        await pauses.when_due()


def _named(error: StoredValueUnreadable, context: Context) -> StoredValueUnreadable:
    """Add the partition and what reads it."""
    app = context.app
    return StoredValueUnreadable(
        f"partition {context.partition}: {error.message} (read by app version {app.version}, schema_version"
        f" {app.schema_version})",
        hint=error.hint,
        **error.facts,
    )


class Incarnation:
    """One ownership of a partition; `run` it once; the other methods are called from the same loop meanwhile.

    Attributes:
        live: the processing; None unless LIVE.
        watch: asks whether the partition is still ours.
    """

    def __init__(
        self,
        context: Context,
        reporter: Reporter,
        lifecycle: Lifecycle,
        memory: Memory,
        retry: RetryRequest,
        refuse: Callable[[SnapreplayError], None],
    ) -> None:
        """Take `refuse`, which is called with the error if a younger process has the same instance id."""
        self._context, self._reporter, self._lifecycle = context, reporter, lifecycle
        self._memory, self._retry, self._refuse = memory, retry, refuse
        self._limits = context.view.output_limits
        self.live: Live | None = None
        self._drills: Drills | None = None
        self._limit: asyncio.Timeout | None = None  # while it is LIVE
        self._driver: RecoveryDriver | None = None
        self._found: SnapreplayError | None = None  # while it was LIVE
        self._end = Ended(None, batch=lifecycle.ownership.batch)  # as known
        self.watch = OwnershipWatch(context, reporter, self._taken, self._end_with, self._lose)
        self._topics_seen = TopicsSeen(context)

    def pause(self, live: Live, paused: Paused | None, done: OnDone) -> None:
        """Pause, or resume (None). A drill of a paused partition is given up."""
        if paused is not None and self._drills is not None:
            self._drills.paused()
        live.pausing.ask(paused, done)

    def drill(self, done: OnDone) -> None:
        """Restore into a store that is thrown away."""
        if self._drills is None:
            done(OperationState.FAILED, None, "the partition is about to become LIVE")
        else:
            self._drills.ask(done)

    def withdraw(self, live: Live, done: OnDone) -> None:
        """Withdraw the request of `done` for a snapshot or a drill."""
        live.snapshots.requests.withdraw(done)
        if self._drills is not None:
            self._drills.withdraw(done)

    def end_within(self, seconds: float) -> None:
        """Cut off the work after this time, but keep the state in memory."""
        if self._limit is not None:
            with suppress(RuntimeError):  # it is over already
                self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def topics_seen(self, ids: Mapping[str, str], *, appeared: bool) -> None:
        """Compare the topics with the recorded ones. A recovery wakes only if a topic that it needs has `appeared`."""
        if self.live is not None:
            recorded = self.live.committer.chain.expected_ids
            if self._topics_seen.is_as_before(recorded, ids):
                return
            if inputs := self._topics_seen.inputs(recorded, ids):
                self.live.doubt_inputs("; ".join(dict.fromkeys(map(str, inputs))))
            if (own := self._topics_seen.own(recorded, ids)) is not None:
                self._own_topics_changed(self.live, own)
        elif self._driver is not None and appeared:
            self._driver.wake()

    def limits_seen(self, limits: Mapping[str, int]) -> None:
        """Use these limits: output topic → the largest record that it takes now, in bytes."""
        self._limits = limits
        if self.live is not None:
            self.live.learn_limits(limits)

    def inputs_seen(self, matched: Iterable[str]) -> None:
        """End after the batch in progress if one of these topics is no input yet: the next recovery adds it."""
        new = sorted(set(matched) - self.live.last.positions.keys()) if self.live is not None else []
        if self.live is not None and new:
            number, taken = self._context.partition, "matches a pattern of the inputs: added"
            log.info("partition %d: %s %s", number, some(new), taken)
            self.live.stop()

    async def run(self) -> Ended:
        try:
            with self._context.pulse.notifying(self.watch.stood_still):
                await self._recover_and_process()
        except StoredValueUnreadable as error:
            return self._ended(_named(error, self._context))
        except SnapreplayError as error:
            return self._ended(error)
        except BaseException as error:  # a defect must stop this partition only, and say so
            if asked_to_end(error):
                raise
            log.exception("partition %d: unexpected error", self._context.partition)
            return self._ended(error)
        return self._ended(None)

    def _ended(self, error: BaseException | None) -> Ended:
        """Return what ended it, the error without its traceback, whose frames hold the state."""
        bare = error.with_traceback(None) if error is not None else None
        at, owner_epoch = asyncio.get_running_loop().time(), self._reporter.facts.owner_epoch
        return replace(self._end, error=bare, owner_epoch=owner_epoch, at=at)

    async def _recover_and_process(self) -> None:
        self._lifecycle.raise_refused()
        if self._lifecycle.ownership.failures.limits_changed:
            self.limits_seen(await limits_now(self._context.cluster, self._limits))
        recovered = await self._recovered()
        if recovered is None:
            return
        self._memory.proven = None  # the log has just led to it
        self._reporter.note(recoverable=None, unrecoverable_reason="")
        live = self.live = self._made_live(recovered)
        if not self._memory.recoverable:  # the alert is silent until somebody has looked
            live.snapshots.monitor.look_at_once()
        try:
            await self._process_in_time(live, recovered)
        except SnapreplayError as error:
            if live.lost is None:
                raise
            raise live.lost from error
        finally:
            await self._left_live(live)

    async def _recovered(self) -> Recovered | None:
        memory = self._memory
        driver = self._driver = RecoveryDriver(
            self._context, memory, self._reporter, insists=self._lifecycle.is_holding
        )
        try:
            return await driver.recover_unless(self._lifecycle.interrupted)
        finally:
            self._driver = None
            if memory.last is not None:
                self._end = replace(self._end, batch=memory.last.increment.batch)

    def _made_live(self, recovered: Recovered) -> Live:
        live = Live(self._context, recovered, self._reporter)
        live.learn_limits(self._limits)
        failures = self._lifecycle.ownership.failures.recovered(live.committer.chain.expected_ids)
        self._lifecycle.update(failures=failures)
        if failures.bisection.times:
            live.careful(failures.bisection, failures.left_out_at(live.last.batch + 1), failures.anchor)
        return live

    async def _process_in_time(self, live: Live, recovered: Recovered) -> None:
        """Process until the limit. What is left in memory then is noted in any case."""
        limit = self._limit = asyncio.timeout(None)
        try:
            async with limit:
                await self._process(live, recovered)
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("partition %d did not end in time, and is aborted", self._context.partition)
        finally:
            self._limit = None

    async def _process(self, live: Live, recovered: Recovered) -> None:
        await check_values(recovered.store)
        self._went_live(live, recovered.worked)
        self._drills = Drills(self._context, live, recovered.store, self._reporter)
        lifecycle = self._lifecycle
        if lifecycle.interrupted.is_set() or lifecycle.is_holding:
            live.stop()
        await live.run()
        lifecycle.raise_refused()
        if self._found is not None:
            raise self._found
        await live.finish()
        unsafe = lifecycle.is_holding or not live.snapshots.monitor.is_recoverable
        if lifecycle.last_snapshot or unsafe:
            await live.hand_over(even_unchanged=unsafe)

    def _went_live(self, live: Live, worked: Worked) -> None:
        live.report()
        self.watch.went_live(live.committer)
        self._reporter.went_live(self._context.metrics)
        if self._reporter.recovery is not None:
            self._learn(self._reporter.recovery, worked)
            if self._context.spans is not None:
                self._context.spans.recovery(self._reporter.recovery)
        if self._retry.under_way:
            live.at_work.then(self._retry.succeeded)

    def _learn(self, restore: RecoveryStatus, worked: Worked) -> None:
        """Compare the prediction of a restore with its time, then use its rates for the next prediction."""
        context, spent = self._context, sum(restore.seconds_per_phase.values())
        predicted = context.rates.predicted_seconds(restore)
        if predicted is not None and spent > 0:
            self._reporter.restore(predicted_seconds=predicted)
            context.metrics.restore_predicted(predicted / spent)
        context.rates.learn(restore, worked)

    async def _left_live(self, live: Live) -> None:
        self.live = None
        self._memory.recoverable = live.snapshots.monitor.is_recoverable
        drills, self._drills = self._drills, None
        try:
            if drills is not None:
                await drills.close()
            await self.watch.left_live()
        finally:
            try:
                await live.close()
            finally:  # cancelled or not: it is the state that counts
                self._memory.kept, doubt = live.kept(), live.committer.doubt
                self._memory.proven = None
                self._end = replace(
                    self._end, batch=live.last.batch, failed=doubt.increment, failed_events=doubt.events
                )

    def _end_with(self, found: SnapreplayError) -> None:
        """Finish the batch in progress, then end with this error."""
        if self.live is not None:
            self._found = found
            self.live.stop()

    def _lose(self, lost: SnapreplayError) -> None:
        """End without the log, which does not hold what was committed: the next recovery writes the state."""
        if self.live is not None:
            self.live.lose(lost)

    def _taken(self, newer: Claim) -> None:
        """React to a newer owner in the log while we are LIVE."""
        duplicate = refusals.duplicate_instance(self._context.expected, newer)
        if duplicate is not None:
            self._refuse(duplicate)
        else:
            self._end_with(Superseded(newer, self._context.partition))

    def _own_topics_changed(self, live: Live, changes: TopicChanges) -> None:
        """React to own topics that are missing or have another id. Without the increments topic nothing can be
        committed; the snapshots topic can wait."""
        context, by_topic = self._context, {each.topic: each for each in changes}
        increments = by_topic.get(context.increments.topic)
        if increments is not None:
            self._lose(lost(context.expected, increments, live.last))
        live.snapshots.topic_changed(by_topic.get(context.snapshots.topic))

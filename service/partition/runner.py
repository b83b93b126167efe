"""One partition from its assignment to its end: performs what `core.ownership` says is next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import assert_never

from msgspec.structs import replace

from snapreplay.errors import SnapreplayError
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.state_reads import AnsweredBy, Readable
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core import ownership as machine
from snapreplay.service.core.custody import IncrementsReplaced
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.core.retained import WarmCopy
from snapreplay.service.live.pipeline import Live
from snapreplay.service.partition.incarnation import Incarnation
from snapreplay.service.partition.lifecycle import Lifecycle, LookedAt, RetryRequest, TakeoverBackoff
from snapreplay.service.ports import TopicPartition
from snapreplay.service.recovery.memory import OTHERS_SECONDS, Memory
from snapreplay.service.runtime.context import ClusterView, Context
from snapreplay.service.runtime.report import Facts, Reporter, problem_of
from snapreplay.service.runtime.tasks import cancel_and_wait, unless, within
from snapreplay.service.topics.increments import newer_owner
from snapreplay.snapshots.format.records import Paused
from snapreplay.state.composite import Store

log = logging.getLogger("snapreplay.partition")

COPY_SECONDS = 5.0


class PartitionRunner:
    """Owns everything of one partition. `run` is its only task; the other methods are called from the same loop."""

    def __init__(
        self,
        context: Context,
        board: StatusBoard,
        on_failed: Callable[[BaseException], None],
        on_claim: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Take `on_failed`, which hears what made the partition FAILED, or a DuplicateInstance, and `on_claim`, which
        is called with each new owner epoch."""
        self._context = context
        self._reporter = Reporter(board, context.partition, on_claim)
        self._on_failed = on_failed
        self._lifecycle = Lifecycle(context)
        self._memory = Memory(context)
        self._retry = RetryRequest()
        self._takeover = TakeoverBackoff(context)
        self._incarnation = self._next_incarnation()
        self._taken_back = asyncio.Event()
        self._dead = False
        self._left = False
        self._released: Live | None = None  # finishes its batch, which may hang
        self._absent: set[str] = set()  # of the topics that a recovery waits for

    @property
    def facts(self) -> Facts:
        """Its phase and owner epoch. Any thread."""
        return self._reporter.facts

    @property
    def phase(self) -> Phase:
        return self.facts.phase

    @property
    def is_asked_to_end(self) -> bool:
        """Whether a stop was requested and not revoked."""
        return self._lifecycle.stopped.is_set()

    @property
    def store(self) -> Store | None:
        """The live state; None unless LIVE."""
        return self._memory.store if self._live is not None else None

    @property
    def readable(self) -> Readable | None:
        """The state as of the last committed batch; None unless LIVE."""
        live, store = self._live, self.store
        if live is None or store is None:
            return None
        watch = self._incarnation.watch
        age_seconds = asyncio.get_running_loop().time() - watch.owned_at
        epoch, doubt = live.committer.chain.owner_epoch, watch.doubt
        return Readable(store, live.last, AnsweredBy.OWNER, epoch, age_seconds, doubt)

    @property
    def increments(self) -> TopicPartition:
        return self._context.increments

    @property
    def is_quiet(self) -> bool:
        """Whether only the end of `increments` can tell of a newer owner now: tell `end_seen`."""
        return self._incarnation.watch.is_quiet

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs, as far as known; one that has just appeared may not be processed yet."""
        return self._context.input_names

    @property
    def reached(self) -> Mapping[str, int] | None:
        """Input → all records before this offset are committed; None unless LIVE."""
        return self._live.reached if self._live is not None else None

    @property
    def paused(self) -> Paused | None:
        """Its pause; None: it is not paused, or not LIVE."""
        return self._live.pausing.committed if self._live is not None else None

    @property
    def unsaved(self) -> SnapreplayError | None:
        """The loss if `run` was cancelled while its state was nowhere else, as an error."""
        return self._memory.unsaved if self._lifecycle.is_holding else self._memory.unproven

    def request_snapshot(self, reason: str, done: OnDone) -> bool:
        """Ask for a full snapshot. False when the partition is not LIVE, as for all that is requested."""
        return self._asked(lambda live: live.snapshots.request(reason, done))

    def request_adoption(self, manifest_offset: int, done: OnDone) -> bool:
        """Judge the proposal of a job whose manifest is at this offset."""
        return self._asked(lambda live: live.snapshots.adopter.request(manifest_offset, done))

    def request_pause(self, paused: Paused | None, done: OnDone) -> bool:
        """Pause, or resume (None)."""
        return self._asked(lambda live: self._incarnation.pause(live, paused, done))

    def request_drill(self, done: OnDone) -> bool:
        """Restore the partition into a store that is thrown away."""
        return self._asked(lambda _: self._incarnation.drill(done))

    def withdraw(self, done: OnDone) -> None:
        """Do not begin the snapshot that `done` waits for, and give up its drill."""
        self._asked(lambda live: self._incarnation.withdraw(live, done))

    def _asked(self, ask: Callable[[Live], None]) -> bool:
        if self._live is not None:
            ask(self._live)
        return self._live is not None

    def take(self, store: Store, copy: WarmCopy) -> None:
        """Begin with the warm copy of a standby; call it before `run`."""
        self._memory.take(store, copy)

    def leave(self) -> tuple[Store, WarmCopy] | None:
        """Give up the state for a standby, after `run`; None if there is none that is whole and in the log."""
        return self._memory.leave() if self._left else None

    def refuse(self, error: SnapreplayError) -> None:
        """End processing, or the recovery in progress: FAILED; for a DuplicateInstance FENCED until the group assigns
        the partition again. The caller logs the hint, which is the same for all partitions."""
        if isinstance(error, DuplicateInstance):
            self._takeover.forget_assignment()
        self._lifecycle.refuse(error)
        if self._live is not None:
            self._live.stop()

    def stop(self, *, last_snapshot: bool) -> None:
        """Finish the batch under way and end `run`. With `last_snapshot`, or if a recovery would fail without one, a
        LIVE partition writes a snapshot first."""
        self._lifecycle.last_snapshot = last_snapshot
        self._lifecycle.stop()
        self._released = self._live
        if self._live is not None:
            self._live.stop()

    def cut_off(self) -> None:
        """Give up the work under way once the time to end is over, but not a state that may be the only copy."""
        if not self._lifecycle.is_holding:
            self._incarnation.end_within(0)

    def take_back(self) -> bool:
        """Process again: the partition is ours again. Return False when `run` has ended."""
        if self._left:
            return False
        if self._live is not None and self._live is self._released:
            self._incarnation.end_within(self._context.settings.timeouts.revoke_ms / 1000)
        self._lifecycle.take_back()
        self._taken_back.set()
        self._takeover.on_reassigned()
        return True

    def retry(self, found: LookedAt, done: OnDone) -> None:
        """Recover a FAILED partition again in the cluster as it is now. `done` gets the result: LIVE, or FAILED."""
        if self._dead:
            done(OperationState.FAILED, None, "a defect ended the partition: restart the process")
        elif self.phase is not Phase.FAILED or self._lifecycle.stopped.is_set():
            done(OperationState.FAILED, None, f"the partition is {self.phase.value} by now")
        else:
            self._retry.ask(found, done)

    def on_reassigned(self) -> None:
        """Note that a new assignment holds the partition, as the one before did."""
        self._takeover.on_reassigned()

    def topics_seen(self, ids: Mapping[str, str]) -> None:
        """Look at topic → id, of the inputs and both own topics, as they are now; a missing one is absent."""
        awaited = {self._context.increments.topic, *self._context.input_names}
        appeared, self._absent = self._absent & set(ids), awaited - set(ids)
        self._incarnation.topics_seen(ids, appeared=bool(appeared))

    def end_seen(self, end_offset: int | None, asked_at: float) -> None:
        """Look at the end of `increments`, asked at this time by the loop's clock; None: no leader says so."""
        self._incarnation.watch.end_seen(end_offset, asked_at)

    def died(self, error: BaseException) -> None:
        """Report that `run` ended with a defect: the partition is not processed any more."""
        log.error("partition %d: unexpected error", self._context.partition, exc_info=error)
        self._dead = True
        self._reporter.died(error)
        self._context.metrics.failed(type(error).__name__, problem_of(error).reaction)
        self._on_failed(error)

    def view_seen(self, found: ClusterView) -> None:
        """Use what is new in the cluster: the largest record that each output takes, and topics that match a pattern
        of the inputs."""
        view = replace(
            self._context.view,
            output_limits=found.output_limits,
            matched=found.matched,
            misfits=found.misfits,
            left_out=found.left_out,
        )
        self._context = replace(self._context, view=view)
        self._incarnation.limits_seen(found.output_limits)
        self._incarnation.inputs_seen(found.matched)

    async def run(self) -> None:
        """Run until stopped. FAILED, when a person must act, it waits for `stop` or `retry`."""
        watch = asyncio.get_running_loop().create_task(self._watch_copy())
        try:
            while not self._left:
                if not self._lifecycle.stopped.is_set():
                    await self._one()
                elif not await self._memory.is_proven():
                    await self._hold()
                elif self._lifecycle.stopped.is_set():
                    self._left = True
            self._lifecycle.update(is_holding=False)
        finally:
            await cancel_and_wait(watch)
            self._retry.answer(OperationState.FAILED, "the partition was stopped, or another process has it now")
            self._reporter.phase(Phase.CLOSED)

    @property
    def _live(self) -> Live | None:
        return self._incarnation.live

    def _next_incarnation(self) -> Incarnation:
        return Incarnation(self._context, self._reporter, self._lifecycle, self._memory, self._retry, self.refuse)

    async def _hold(self) -> None:
        """Run ownerships as usual, but only until the state is in the log."""
        if not self._lifecycle.stopped.is_set():
            return  # it was taken back meanwhile
        if not self._lifecycle.ownership.is_holding:
            self._taken_back.clear()
            self._memory.retry_aside()  # the process may have seconds left, and what made attempts fail may be repaired
        self._lifecycle.update(is_holding=True)
        if await self._memory.is_to_be_written(self._lifecycle.ownership.owner_epoch):
            if self._lifecycle.ownership.refused is not None:  # an own topic may take no record
                await self._memory.write_aside(self._reporter)
            await self._one()

    async def _one(self) -> None:
        self._incarnation = self._next_incarnation()
        ended = await self._incarnation.run()
        self._tell_only_copy()  # what is asked next may wait for minutes
        outcome: machine.Outcome = ended
        while True:
            try:
                ownership, following = machine.step(self._lifecycle.ownership, outcome)
                self._lifecycle.update(ownership)
                if isinstance(following, machine.Own):
                    return
                outcome = await self._perform(following)
            except Exception as error:  # else the partition would not be processed any more
                if isinstance(outcome, machine.Ended) and machine.is_defect(outcome.error):
                    raise  # the second one in a row
                log.exception("partition %d: unexpected error", self._context.partition)
                # Without its traceback, whose frames hold the state.
                outcome = replace(ended, error=error.with_traceback(None))

    async def _perform(self, following: machine.Next) -> machine.Outcome:
        match following:
            case machine.AskForLoss():
                self._not_live_any_more()
                return machine.LossAnswered(await self._memory.loss())
            case machine.AskForOwner():
                return await self._ask_for_owner()
            case machine.Lose(error):
                self._lose(error)
                return machine.Done()
            case machine.BackOff():
                return await self._back_off(following)
            case machine.StandBack():
                return await self._stand_back(following)
            case machine.StandAside():
                return await self._stand_aside(following)
            case machine.FailPartition():
                return await self._fail(following)
            case machine.Own():
                raise AssertionError("an ownership is no part of the end of another one")
            case _:
                assert_never(following)

    async def _ask_for_owner(self) -> machine.Outcome:
        """Ask who owns the partition; who is stopped meanwhile does not wait for the answer."""
        epoch, newer = self._lifecycle.ownership.owner_epoch, None
        try:
            if epoch is not None:
                newer = await unless(self._lifecycle.interrupted, newer_owner(self._context, epoch))
        except SnapreplayError as unknown:
            return machine.OwnerUnknown(unknown)
        return machine.OwnerAnswered(newer, asyncio.get_running_loop().time())

    def _lose(self, error: SnapreplayError) -> None:
        log.error("partition %d: %s", self._context.partition, error)
        self._not_live_any_more()
        self._reporter.failed(error)
        self._memory.proven = False
        if isinstance(error, IncrementsReplaced):
            self._memory.replaced()
        self._tell_only_copy()

    async def _back_off(self, wait: machine.BackOff) -> machine.Outcome:
        """Back off, but end at once when stopped or refused."""
        self._context.metrics.failed(type(wait.error).__name__, wait.error.reaction.value)
        self._not_live_any_more()
        self._reporter.retrying(wait.error)
        await within(wait.seconds, self._lifecycle.interrupted)
        return machine.Interrupted() if self._lifecycle.interrupted.is_set() else machine.Done()

    async def _stand_back(self, taken: machine.StandBack) -> machine.Outcome:
        """Wait until the group gives us the partition. The supervisor ends us when it is another's by our own view."""
        self._context.witnesses.forget(self._context.increments)
        await self._memory.forget_if_proven()  # it will be another one when it is ours again
        self._tell_fenced(taken.error)
        log.warning("partition %d: %s", self._context.partition, taken.error)
        await self._until_proven_if_held()
        if not self._lifecycle.ownership.is_holding:
            await self._takeover.until_given(taken.times, self._lifecycle.interrupted)
        return machine.Done()

    async def _stand_aside(self, aside: machine.StandAside) -> machine.Outcome:
        """Wait as a refused one. Its log line is the service's, one for all partitions."""
        if aside.is_new:
            self._takeover.forget_assignment()
        self._context.witnesses.forget(self._context.increments)
        if aside.has_claimed:
            await self._memory.forget_if_proven()
        if self._lifecycle.ownership.refused is None and not self._lifecycle.ownership.is_holding:
            self.refuse(aside.error)  # it was taken back meanwhile
        self._tell_fenced(aside.error)
        self._on_failed(aside.error)
        if self._lifecycle.ownership.is_holding:
            await self._memory.until_proven(OTHERS_SECONDS)
        else:
            await self._takeover.until_assigned(self._lifecycle.stopped)
        return machine.Done()

    def _tell_fenced(self, error: SnapreplayError) -> None:
        """Report that another process has the partition."""
        self._tell_only_copy()
        self._context.metrics.fenced()
        self._reporter.phase(Phase.FENCED)
        self._reporter.failed(error)
        self._retry.answer(OperationState.FAILED, error.message)

    async def _fail(self, failed: machine.FailPartition) -> machine.Outcome:
        error, problem = failed.error, problem_of(failed.error)
        self._context.metrics.failed(problem.kind, problem.reaction)
        self._reporter.failed(error)
        self._reporter.phase(Phase.FAILED)
        self._reporter.failures.final(error, hint_is_logged=failed.hint_is_logged)
        self._on_failed(error)
        if failed.is_unproven:
            self._memory.proven = False
        if failed.is_defect:
            await self._memory.forget_if_proven()
        self._tell_only_copy()
        self._retry.answer(OperationState.FAILED, problem.message)
        await self._until_proven_if_held()
        return machine.Done() if self._lifecycle.ownership.is_holding else await self._until_retried(failed)

    async def _until_retried(self, failed: machine.FailPartition) -> machine.Outcome:
        """Wait for `stop` or `retry`, or until another process has written what this one could not continue from."""
        written = self._memory.until_written(self._lifecycle.stopped) if failed.may_be_written else None
        keeping = asyncio.get_running_loop().create_task(self._keep_copy())
        try:
            found = await self._retry.until_asked(self._lifecycle.stopped, written)
        finally:
            await cancel_and_wait(keeping)
        if found is None:
            return machine.Interrupted()
        if isinstance(found, SnapreplayError):
            return machine.Retried(found)
        log.info("partition %d: recovers again, as an operator asked", self._context.partition)
        self._context = replace(self._context, view=found)
        self._reporter.update(error=None)
        return machine.Retried(None)

    async def _until_proven_if_held(self) -> None:
        """Wait until the state is proven, or until the partition is ours again: then it is not held any more."""
        if self._lifecycle.ownership.is_holding:
            await unless(self._taken_back, self._memory.until_proven(OTHERS_SECONDS))

    async def _watch_copy(self) -> None:
        """Check, while the partition is not LIVE, that the log still has a copy of the state in memory."""
        while True:
            await asyncio.sleep(COPY_SECONDS)
            kept = self._memory.kept
            if kept is None or self._live is not None:
                continue
            try:
                await self._memory.is_proven()
            except Exception:  # the watch must outlive one failed look
                log.exception("partition %d: unexpected error", self._context.partition)
            if self._memory.kept is kept and self._live is None:
                self._tell_only_copy()

    async def _keep_copy(self) -> None:
        """Write the state aside as soon as it is the only copy."""
        while True:
            await asyncio.sleep(COPY_SECONDS)
            if self._memory.unproven is None:
                continue
            try:
                await self._memory.write_aside(self._reporter)
            except Exception:  # else the wait for a retry would end with it
                log.exception("partition %d: unexpected error", self._context.partition)
            self._tell_only_copy()

    def _tell_only_copy(self) -> None:
        """Report whether the state in memory is the only copy: the alert that forbids a stop must outlast LIVE."""
        lost = self._memory.unproven
        self._reporter.note(recoverable=False if lost else None, unrecoverable_reason=lost.message if lost else "")

    def _not_live_any_more(self) -> None:
        """Leave LIVE: a partition that waits for its next recovery is not ready."""
        if self.phase is Phase.LIVE:
            self._reporter.phase(Phase.FENCING)


class EndedUnasked(RuntimeError):
    """A partition is not processed any more, and it was not to end."""


def tell_defect(runner: PartitionRunner, ended: asyncio.Task[None]) -> None:
    """Report a runner that ended by a defect. It is not awaited before `stop`: its partition would stop unnoticed."""
    error = None if ended.cancelled() else ended.exception()
    if error is None and not runner.is_asked_to_end:
        error = EndedUnasked("its task ended unexpectedly")
    if error is not None:
        runner.died(error)

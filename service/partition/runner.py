"""One partition from its assignment to its end: recover, process, and again after whatever is not final."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from snapreplay.service.core import stops
from snapreplay.service.core.backoff import RetryPauses
from snapreplay.service.core.custody import (
    DoubtUnresolved,
    IncrementsMissing,
    IncrementsReplaced,
    StateDisputed,
)
from snapreplay.service.core.phase import Phase
from snapreplay.service.partition.batch_failures import HalfApplied, Refusals
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.custody import NotGiven
from snapreplay.service.partition.incarnation import Incarnation
from snapreplay.service.partition.live import Live
from snapreplay.service.partition.memory import OTHERS_SECONDS
from snapreplay.service.partition.ownership import newer_owner
from snapreplay.service.partition.recoverer import Superseded
from snapreplay.service.partition.remade import EXPLAINED
from snapreplay.service.partition.report import problem_of
from snapreplay.service.partition.retry import Found
from snapreplay.service.partition.snapshot_keeper import OnDone
from snapreplay.service.partition.suspicion import Suspicion
from snapreplay.service.partition.tasks import unless
from snapreplay.service.partition.value_check import named
from snapreplay.service.ports import (
    ClockRefused,
    CommitInDoubt,
    Fenced,
    RefusedRecord,
    RefusedTopic,
)
from snapreplay.service.status import StatusBoard
from snapreplay.snapshots.errors import AccessError, Reaction, SnapreplayError
from snapreplay.snapshots.state.values import StoredValueUnreadable

log = logging.getLogger("snapreplay.partition")

AGAIN = (Reaction.RETRY, Reaction.RELEASE)
ASK_AGAIN_SECONDS = 1.0  # whether the group gives us the partition by now


class PartitionRunner(Incarnation):
    """Owns everything of one partition. `run` is its only task; the other methods are called from the same loop."""

    def __init__(
        self, context: Context, board: StatusBoard, on_failed: Callable[[BaseException], None]
    ) -> None:
        """`on_failed` hears what made the partition FAILED, or a DuplicateInstance."""
        super().__init__(context, board)
        self._on_failed = on_failed
        self._stop = asyncio.Event()
        self._suspicion = Suspicion(context, self.refuse)
        self._pauses = RetryPauses()
        self._taken_back = asyncio.Event()
        self._dead = False
        self._left = False
        self._released: Live | None = None  # finishes its batch, which may hang
        self._absent: set[str] = set()  # of the topics that a recovery waits for

    @property
    def phase(self) -> Phase:
        return self._reporter.status.phase

    @property
    def lost(self) -> SnapreplayError | None:
        """After `run` was cancelled: the state that went with it, which was nowhere else."""
        return self._memory.unsaved if self._holding else self._memory.lost

    def stop(self, *, final_snapshot: bool) -> None:
        """Finish the batch under way and end `run`. With `final_snapshot` a LIVE partition writes one first."""
        self._final_snapshot = final_snapshot
        self._stop.set()
        self._interrupted.set()
        self._released = self._live
        if self._live is not None:
            self._live.stop()

    def take_back(self) -> bool:
        """The partition is ours again while `run` still finishes a batch, or goes on for its state only: it processes
        again. False when it has ended."""
        if self._left:
            return False
        if self._limit is not None and self._live is not None and self._live is self._released:
            revoke_seconds = self._context.settings.timeouts.revoke_ms / 1000
            with suppress(RuntimeError):  # it is over already
                self._limit.reschedule(asyncio.get_running_loop().time() + revoke_seconds)
        self._stop.clear()
        if self._refused is None:
            self._interrupted.clear()
        self._holding = False
        self._taken_back.set()
        self._stand_back.given_again()
        return True

    def retry(self, found: Found, done: OnDone) -> None:
        """A person has acted: a FAILED partition recovers again, in the cluster as it is now. `done` hears what became
        of it: LIVE, or FAILED again."""
        if self._dead:
            done("failed", None, "a defect has ended it: only a restart of the process helps")
        elif self.phase is not Phase.FAILED or self._stop.is_set():
            done("failed", None, f"it is {self.phase.value} by now")
        else:
            self._retry.ask(found, done)

    def given_again(self) -> None:
        """A new assignment holds the partition, as the one before did."""
        self._stand_back.given_again()

    def topics_seen(self, ids: Mapping[str, str]) -> None:
        """Topic → id, of the inputs and both own topics, as the cluster names them now; a missing one is absent."""
        awaited = {self._context.increments.topic, *self._context.input_names}
        appeared, self._absent = self._absent & set(ids), awaited - set(ids)
        if self._live is not None:
            self._topics_seen.seen(self._live.topic_ids, ids)
        elif self._recoverer is not None and appeared:  # not each second: no back-off would last
            self._recoverer.wake()

    def died(self, error: BaseException) -> None:
        """`run` ended with a defect in what decides about an end: nobody processes the partition any more."""
        log.error("partition %d: unexpected error", self._context.partition, exc_info=error)
        self._dead = True
        self._reporter.died(error)
        self._context.metrics.failed(type(error).__name__, problem_of(error).reaction)
        self._on_failed(error)

    def suspect(self) -> None:
        """The group threw us out again and again: ask the log whether a process with our instance id has claimed
        the partition. Without input no fence would ever tell."""
        if self._live is not None:
            self._suspicion.ask(self._reporter.status.owner_epoch)

    async def run(self) -> None:
        """Ends when stopped. FAILED, when a person must act, it waits for `stop` or `retry`."""
        try:
            with self._context.pulse.told(self._standstill.stood_still):
                while True:
                    while not self._stop.is_set():
                        await self._incarnation()
                    if await self._memory.is_proven() and self._stop.is_set():
                        self._left = True
                        break
                    if self._stop.is_set():
                        await self._hold()
                self._holding = False
        finally:
            await self._suspicion.end()
            self._retry.answer("failed", "it was stopped, or another process has it now")
            self._reporter.phase(Phase.CLOSED)

    async def _incarnation(self) -> None:
        """One ownership, from the fence to whatever ends it."""
        ended_by = await self._end_of_ownership()
        try:
            await self._decide(ended_by)
        except Exception as error:  # else nobody would process the partition any more
            log.exception("partition %d: unexpected error", self._context.partition)
            await self._reacted(error.with_traceback(None))

    async def _decide(self, ended_by: Exception | None) -> None:
        """Every outcome is decided here, by the error's type."""
        match ended_by:
            case None:
                return
            case Superseded() as error:
                await self._fenced(error)
            case stops.DuplicateInstance() as error:
                await self._stand_aside(error)
            case IncrementsMissing() | IncrementsReplaced() as error:
                self._after_loss(error)
            case HalfApplied() as error:
                self._stop_at = error
                self._reporter.failed(error.failed)
            case Fenced() | CommitInDoubt() | AccessError() | ClockRefused() as error:
                await self._after_doubt(error)
            case RefusedRecord() as error:
                await self._after_refusal(error)
            case StoredValueUnreadable() as error:
                await self._reacted(named(error, self._context))
            case error:
                await self._reacted(error)

    async def _hold(self) -> None:
        """The way of every incarnation, but only until the state is in the log."""
        if not self._holding:
            self._taken_back.clear()
        self._holding, self._interrupted = True, asyncio.Event()  # what had set it counts no more
        if await self._memory.is_to_be_written(self._reporter.status.owner_epoch):
            await self._incarnation()

    async def _fenced(self, error: Superseded) -> None:
        """A newer owner exists. We fence it in return only when the group's coordinator gives us the partition; the
        supervisor ends us when our own view of the group says that it is another's."""
        await self._memory.forget_if_proven()  # it will be another one when it is ours again
        self._context.metrics.fenced()
        self._reporter.phase(Phase.FENCED)
        reported = self._stand_back.taken(error.newer, error)
        self._reporter.failed(reported)
        self._retry.answer("failed", reported.message)
        log.warning("partition %d: %s", self._context.partition, reported)
        await self._until_proven_if_held()
        if not self._holding:
            await self._stand_back.until_given(self._interrupted)

    def _after_loss(self, error: SnapreplayError) -> None:
        """T-ZengLiang is gone, or another one. The next recovery waits for it, and writes what is in memory."""
        log.error("partition %d: %s", self._context.partition, error)
        self._not_live_any_more()
        self._reporter.failed(error)
        self._memory.proven = False
        if isinstance(error, IncrementsReplaced):
            self._memory.replaced()

    async def _after_doubt(self, error: SnapreplayError) -> None:
        """A fence may only be a transaction that timed out, and a doubt may be a fence that was not answered as one;
        whom Kafka keeps out may have a successor by now. Before we fence anybody the log says whether somebody claimed,
        asked again after the pause: a fence comes some milliseconds before its claim."""
        self._not_live_any_more()
        loss = await self._memory.loss()
        if loss is not None:
            self._after_loss(loss)
            return
        if await self._yielded():
            return
        if self._doubtful is not None and isinstance(error, Fenced | CommitInDoubt):
            self._refusals.doubted(self._doubtful)
        await self._reacted(error)
        if not self._interrupted.is_set():
            await self._yielded()

    async def _after_refusal(self, error: RefusedRecord) -> None:
        """A deterministic failure is not doubt: the batch is cut down to the record that the broker does not take.
        That one is then a record which cannot be applied, and the policy decides."""
        failed = self._doubtful
        loss = await self._memory.loss() if isinstance(error, RefusedTopic) else None
        if loss is not None:
            self._after_loss(loss)
            return
        if failed is None:
            await self._reacted(error)
            return
        final = self._refusals.refused(failed, error)
        if final is not None:
            await self._fail(final)
        else:
            await self._reacted(error)

    async def _yielded(self) -> bool:
        """Whether a newer owner was found, or the log could not be asked; then all is done that is to be done. Who is
        stopped meanwhile does not wait for the answer."""
        owner_epoch = self._reporter.status.owner_epoch
        try:
            newer = None
            if owner_epoch is not None:
                newer = await unless(self._interrupted, newer_owner(self._context, owner_epoch))
        except SnapreplayError as unknown:
            await self._reacted(unknown)
            return True
        if newer is None:
            return False
        duplicate = stops.duplicate_instance(self._context.expected, newer)
        if duplicate is not None:
            await self._memory.forget_if_proven()
            await self._stand_aside(duplicate)
        else:
            await self._fenced(Superseded(newer, self._context.partition))
        return True

    async def _stand_aside(self, error: stops.DuplicateInstance) -> None:
        """Another process of our instance id is there. Nobody is asked for the partition: the process is no member
        until that one is gone, and then a new assignment says what is ours. Its log line is the service's, one for
        all partitions."""
        if self._refused is None and not self._holding:
            self.refuse(error)
        self._context.metrics.fenced()
        self._reporter.phase(Phase.FENCED)
        self._reporter.failed(error)
        self._retry.answer("failed", error.message)
        self._on_failed(error)
        if self._holding:
            await self._memory.until_proven(OTHERS_SECONDS)
            return
        await self._stand_back.until_assigned(self._stop)
        self._resume()

    def _resume(self) -> None:
        """What refused the partition is over."""
        self._refused = None
        if not self._stop.is_set():
            self._interrupted.clear()

    async def _reacted(self, error: Exception) -> None:
        if not isinstance(error, SnapreplayError) or error.reaction not in AGAIN:
            await self._fail(error)
            return
        self._not_live_any_more()
        self._reporter.retrying(error)
        settings = self._context.settings.restore
        if isinstance(error, NotGiven):
            await self._sleep(ASK_AGAIN_SECONDS)
            return
        delay_ms = self._pauses.next_ms(
            self._reporter.status.batch or 0,
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
        )
        await self._sleep(delay_ms / 1000)

    def _not_live_any_more(self) -> None:
        """Nobody is to take it for ready while it waits for its next recovery."""
        if self.phase is Phase.LIVE:
            self._reporter.phase(Phase.FENCING)

    async def _fail(self, error: BaseException) -> None:
        problem = problem_of(error)
        self._context.metrics.failed(problem.kind, problem.reaction)
        self._reporter.failed(error)
        self._reporter.phase(Phase.FAILED)
        self._reporter.failures.final(error, hint=error is not self._refused)
        self._on_failed(error)
        if isinstance(error, StateDisputed | DoubtUnresolved):
            self._memory.proven = False
        if not isinstance(error, SnapreplayError):  # after a defect nobody knows what the state is
            await self._memory.forget_if_proven()
        self._retry.answer("failed", problem.message)
        await self._until_proven_if_held()
        if not self._holding:
            writable = isinstance(error, (*EXPLAINED, StateDisputed))
            await self._until_retried(may_be_written=writable)

    async def _until_proven_if_held(self) -> None:
        """Or until the partition is ours again: then it is not held any more."""
        if self._holding:
            await unless(self._taken_back, self._memory.until_proven(OTHERS_SECONDS))

    async def _until_retried(self, *, may_be_written: bool) -> None:
        """FAILED: until `stop`, or until somebody who has acted says `retry`. Nothing that was held against the input
        counts any more: a limit may have been raised, a finding accepted. `may_be_written`: also until another process
        has written what this one could not go on from."""
        written = self._memory.until_written(self._stop) if may_be_written else None
        found = await self._retry.until_asked(self._stop, written)
        if found is None:
            return
        self._resume()
        if isinstance(found, SnapreplayError):
            self._refused = found
            return
        log.info("partition %d: recovers again, as an operator asked", self._context.partition)
        self._context = replace(self._context, view=found)
        self._stop_at, self._refusals = None, Refusals(self._context.partition)
        self._pauses = RetryPauses()
        self._reporter.update(error=None)

    async def _sleep(self, seconds: float) -> None:
        """Back off, but end at once when stopped or refused."""
        try:
            await asyncio.wait_for(self._interrupted.wait(), seconds)
        except TimeoutError:
            return

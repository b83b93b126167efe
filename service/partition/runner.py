"""One partition from its assignment to its end: performs what `core.ownership` says is next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from snapreplay.errors import SnapreplayError
from snapreplay.service.control.protocol import OperationState
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.custody import IncrementsReplaced
from snapreplay.service.core.ownership import (
    AskForLoss,
    AskForOwner,
    Done,
    Ended,
    Fail,
    Interrupted,
    Lose,
    LossAnswered,
    Next,
    Outcome,
    Own,
    OwnerAnswered,
    OwnerUnknown,
    Pause,
    Retried,
    StandAside,
    StandBack,
    is_defect,
    step,
)
from snapreplay.service.core.phase import Phase
from snapreplay.service.live.pipeline import Live
from snapreplay.service.live.snapshot_scheduler import OnDone
from snapreplay.service.partition.incarnation import Incarnation
from snapreplay.service.partition.memory import OTHERS_SECONDS
from snapreplay.service.partition.retry import LookedAt
from snapreplay.service.partition.suspicion import Suspicion
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import problem_of
from snapreplay.service.runtime.tasks import unless, within
from snapreplay.service.topics.claims import newer_owner

log = logging.getLogger("snapreplay.partition")


class PartitionRunner(Incarnation):
    """Owns everything of one partition. `run` is its only task; the other methods are called from the same loop."""

    def __init__(
        self, context: Context, board: StatusBoard, on_failed: Callable[[BaseException], None]
    ) -> None:
        """`on_failed` hears what made the partition FAILED, or a DuplicateInstance."""
        super().__init__(context, board)
        self._on_failed = on_failed
        self._suspicion = Suspicion(context, self.refuse)
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
        return self._memory.unsaved if self._ownership.is_holding else self._memory.lost

    def stop(self, *, final_snapshot: bool) -> None:
        """Finish the batch under way and end `run`. With `final_snapshot` a LIVE partition writes one first."""
        self._final_snapshot = final_snapshot
        self._stop.set()
        self._set()
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
        self._set(is_holding=False)
        self._taken_back.set()
        self._takeover.on_reassigned()
        return True

    def retry(self, found: LookedAt, done: OnDone) -> None:
        """A person has acted: a FAILED partition recovers again, in the cluster as it is now. `done` hears what became
        of it: LIVE, or FAILED again."""
        if self._dead:
            done(
                OperationState.FAILED,
                None,
                "a defect ended the partition: restart the process",
            )
        elif self.phase is not Phase.FAILED or self._stop.is_set():
            done(OperationState.FAILED, None, f"the partition is {self.phase.value} by now")
        else:
            self._retry.ask(found, done)

    def on_reassigned(self) -> None:
        """A new assignment holds the partition, as the one before did."""
        self._takeover.on_reassigned()

    def topics_seen(self, ids: Mapping[str, str]) -> None:
        """Topic → id, of the inputs and both own topics, as the cluster names them now; a missing one is absent."""
        awaited = {self._context.increments.topic, *self._context.input_names}
        appeared, self._absent = self._absent & set(ids), awaited - set(ids)
        if self._live is not None:
            self._topics_seen.seen(self._live.topic_ids, ids)
        elif self._driver is not None and appeared:  # not each second: no back-off would last
            self._driver.wake()

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
            self._suspicion.ask(self._owner_epoch)

    async def run(self) -> None:
        """Ends when stopped. FAILED, when a person must act, it waits for `stop` or `retry`."""
        try:
            with self._context.pulse.told(self._standstill.stood_still):
                while True:
                    while not self._stop.is_set():
                        await self._one()
                    if await self._memory.is_proven() and self._stop.is_set():
                        self._left = True
                        break
                    if self._stop.is_set():
                        await self._hold()
                self._set(is_holding=False)
        finally:
            await self._suspicion.end()
            self._retry.answer(
                OperationState.FAILED, "the partition was stopped, or another process has it now"
            )
            self._reporter.phase(Phase.CLOSED)

    async def _hold(self) -> None:
        """The way of every ownership, but only until the state is in the log."""
        if not self._ownership.is_holding:
            self._taken_back.clear()
        self._set(is_holding=True)
        if await self._memory.is_to_be_written(self._ownership.owner_epoch):
            await self._one()

    async def _one(self) -> None:
        """One ownership, and what its end asks for."""
        outcome: Outcome = await self._own()
        while True:
            try:
                ownership, following = step(self._ownership, outcome)
                self._set(ownership)
                if isinstance(following, Own):
                    return
                outcome = await self._perform(following)
            except Exception as error:  # else nobody would process the partition any more
                if isinstance(outcome, Ended) and is_defect(outcome.error):
                    raise  # the second one in a row
                log.exception("partition %d: unexpected error", self._context.partition)
                outcome = self._ended(error)

    async def _perform(self, following: Next) -> Outcome:
        match following:
            case AskForLoss():
                self._not_live_any_more()
                return LossAnswered(await self._memory.loss())
            case AskForOwner():
                return await self._ask_for_owner()
            case Lose(error):
                self._lose(error)
                return Done()
            case Pause():
                return await self._pause(following)
            case StandBack():
                return await self._stand_back(following)
            case StandAside():
                return await self._stand_aside(following)
            case Fail():
                return await self._fail(following)
            case Own():
                raise AssertionError("an ownership is no part of the end of another one")
            case _:
                assert_never(following)

    async def _ask_for_owner(self) -> Outcome:
        """Who is stopped meanwhile does not wait for the answer."""
        epoch, newer = self._ownership.owner_epoch, None
        try:
            if epoch is not None:
                newer = await unless(self._interrupted, newer_owner(self._context, epoch))
        except SnapreplayError as unknown:
            return OwnerUnknown(unknown)
        return OwnerAnswered(newer, asyncio.get_running_loop().time())

    def _lose(self, error: SnapreplayError) -> None:
        log.error("partition %d: %s", self._context.partition, error)
        self._not_live_any_more()
        self._reporter.failed(error)
        self._memory.proven = False
        if isinstance(error, IncrementsReplaced):
            self._memory.replaced()

    async def _pause(self, pause: Pause) -> Outcome:
        """Back off, but end at once when stopped or refused."""
        self._not_live_any_more()
        self._reporter.retrying(pause.error)
        await within(pause.seconds, self._interrupted)
        return Interrupted() if self._interrupted.is_set() else Done()

    async def _stand_back(self, taken: StandBack) -> Outcome:
        """The supervisor ends us when our own view of the group says that the partition is another's."""
        await self._memory.forget_if_proven()  # it will be another one when it is ours again
        self._context.metrics.fenced()
        self._reporter.phase(Phase.FENCED)
        self._reporter.failed(taken.error)
        self._retry.answer(OperationState.FAILED, taken.error.message)
        log.warning("partition %d: %s", self._context.partition, taken.error)
        await self._until_proven_if_held()
        if not self._ownership.is_holding:
            await self._takeover.until_given(taken.times, self._interrupted)
        return Done()

    async def _stand_aside(self, aside: StandAside) -> Outcome:
        """Its log line is the service's, one for all partitions."""
        if aside.is_new:
            self._takeover.forget_assignment()
        if aside.has_claimed:
            await self._memory.forget_if_proven()
        if self._ownership.refused is None and not self._ownership.is_holding:
            self.refuse(aside.error)  # it was taken back meanwhile
        self._context.metrics.fenced()
        self._reporter.phase(Phase.FENCED)
        self._reporter.failed(aside.error)
        self._retry.answer(OperationState.FAILED, aside.error.message)
        self._on_failed(aside.error)
        if self._ownership.is_holding:
            await self._memory.until_proven(OTHERS_SECONDS)
        else:
            await self._takeover.until_assigned(self._stop)
        return Done()

    async def _fail(self, failed: Fail) -> Outcome:
        error, problem = failed.error, problem_of(failed.error)
        self._context.metrics.failed(problem.kind, problem.reaction)
        self._reporter.failed(error)
        self._reporter.phase(Phase.FAILED)
        self._reporter.failures.final(error, is_told=failed.is_told)
        self._on_failed(error)
        if failed.is_unproven:
            self._memory.proven = False
        if failed.is_defect:
            await self._memory.forget_if_proven()
        self._retry.answer(OperationState.FAILED, problem.message)
        await self._until_proven_if_held()
        return Done() if self._ownership.is_holding else await self._until_retried(failed)

    async def _until_retried(self, failed: Fail) -> Outcome:
        """Until `stop`, or until somebody who has acted says `retry`; where another process may write what this one
        could not go on from, until it has."""
        written = self._memory.until_written(self._stop) if failed.may_be_written else None
        found = await self._retry.until_asked(self._stop, written)
        if found is None:
            return Interrupted()
        if isinstance(found, SnapreplayError):
            return Retried(found)
        log.info("partition %d: recovers again, as an operator asked", self._context.partition)
        self._context = replace(self._context, view=found)
        self._reporter.update(error=None)
        return Retried(None)

    async def _until_proven_if_held(self) -> None:
        """Or until the partition is ours again: then it is not held any more."""
        if self._ownership.is_holding:
            await unless(self._taken_back, self._memory.until_proven(OTHERS_SECONDS))

    def _not_live_any_more(self) -> None:
        """Nobody is to take it for ready while it waits for its next recovery."""
        if self.phase is Phase.LIVE:
            self._reporter.phase(Phase.FENCING)

"""Finds out what a recovery would find now: runs its reading part, without a fence or a claim."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TypeVar, assert_never

from msgspec.structs import replace

from snapreplay.errors import RetryableError, SnapreplayError, StopError, UsageError
from snapreplay.service.core import effects, events
from snapreplay.service.core.phase import Phase, RestoreMode
from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.refusals import LogCut
from snapreplay.service.core.retained import WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.ports import Bounds, Reader
from snapreplay.service.recovery import input_identity
from snapreplay.service.recovery.acceptable_failures import with_way_out
from snapreplay.service.recovery.executor import RecoveryExecutor, attempt, preferred_mode
from snapreplay.service.recovery.follower import At
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.progress import SILENT, RestoreProgress
from snapreplay.service.topics.increments import last_increment, why_gone
from snapreplay.service.topics.reading import AGREED_TIMES, Patience
from snapreplay.snapshots.format.records import NO_OFFSET
from snapreplay.snapshots.log.batches import Base, BrokenChain
from snapreplay.snapshots.plan import Start
from snapreplay.state.composite import Store

T = TypeVar("T")

NEWS_SECONDS = 3.0
EXAMINATIONS_MAX = 5  # beside an owner that continues
SEE_AGAIN_SECONDS = 60.0

OnNews = Callable[[str], None]
"""Called with a sentence without its full stop."""

_LOOKING = {
    Phase.LOCATING: "looking for the last increment",
    Phase.LOADING: "loading a state to start from",
    Phase.ADVANCING: "bringing the state forward, then checking the inputs",
}


class OlderState(UsageError):
    """The state has an older `schema_version`, which this version of the app upgrades.

    Safe: Nothing was changed, and the state stays as it is.
    """


class LogEndsBefore(RetryableError):
    """The log no longer has an increment that was read from it before: a stale leader has answered, or the log has lost
    its newest records. New records may be at their offsets."""


class EndsTooEarly(StopError):
    """The log ends before a batch whose commit was acknowledged."""


class OwnerWentOn(RetryableError):
    """The log was examined several times, and each time the owner committed further batches meanwhile, so the log
    seemed to have lost its newest records."""


_OR_OVERTAKEN = (IncrementsBehind, LogCut, EndsTooEarly)
"""A lost end of the log, or an owner that has committed since the end was asked for."""


class News(RestoreProgress):
    """Reports in sentences what is being examined, and every few seconds how far."""

    def __init__(self, on_news: OnNews, partition: int | None = None) -> None:
        """Take `partition`, if the sentences are to name it."""
        self._on_news = on_news
        self._of = "" if partition is None else f"partition {partition}: "
        self._looking = self._last = ""
        self._told_at = 0.0

    def phase(self, phase: Phase) -> None:
        looking = _LOOKING.get(phase, "")
        if looking and looking != self._looking:
            self._tell(looking)
        self._looking = looking or self._looking

    def progress(self, unit: str, from_: int, current: int, target: int) -> None:
        if asyncio.get_running_loop().time() - self._told_at > NEWS_SECONDS:
            self._tell(f"{self._looking}: {current - from_:,} of {target - from_:,} {unit}")

    def waiting_for(self, what: str) -> None:
        if asyncio.get_running_loop().time() - self._told_at > NEWS_SECONDS or what[:40] not in self._last:
            self._tell(what)

    def _tell(self, news: str) -> None:
        self._told_at, self._last = asyncio.get_running_loop().time(), news
        self._on_news(f"{self._of}{news}")


class Examiner:
    """Runs the reading part of a recovery; the log's end takes the place of the claim. Use once: `examine`, then
    perhaps others, then `close`. `end_offset`: the end of the increments topic when the examination began."""

    def __init__(
        self, context: Context, store: Store, progress: RestoreProgress = SILENT, copy: WarmCopy | None = None
    ) -> None:
        """Take `copy`, a warm one that `store` holds."""
        self._context = context
        self._log = context.increments
        self._progress = progress
        self.executor = RecoveryExecutor(context, store, progress)
        self.store = store
        self.end_offset = NO_OFFSET
        self._followed_ids: Mapping[str, str] | None = None
        self._recovery = Recovery(context.expected, preferred_mode(context), copy=copy)
        self._advanced = False
        self._looked_to = NO_OFFSET
        self._seen_at = -math.inf  # by the loop's clock: when the last increment was last seen in the log
        self._is_doubted = False
        self._least_batch = 0

    @property
    def last(self) -> FoundIncrement | None:
        """The last increment; None when there is none that can be read."""
        return self._recovery.last

    @property
    def found(self) -> FoundIncrement:
        """The last increment, where something was found or loaded."""
        return _there(self.last)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the inputs with which the state continues; only after they were examined."""
        return self.executor.topic_ids if self._followed_ids is None else self._followed_ids

    @property
    def start(self) -> Start:
        """The start of the state; only after something was loaded."""
        if self._recovery.start is None:
            raise AssertionError("nothing was loaded")
        return self._recovery.start

    async def examine(self) -> SnapreplayError | None:
        """Return the error that a recovery would fail with now; None: it would go LIVE.

        Raises:
            RetryableError: it could not be found out.
        """
        _, end = await attempt(self._recovery, self._perform, self._seen)
        match end:
            case effects.GoLive():
                return None
            case effects.Fail(error):
                return error
            case effects.Wait(_, error):
                raise error
            case effects.GiveWay():
                raise AssertionError("there is no claim after a claim that was not written")
            case _:
                assert_never(end)

    async def examine_beside_owner(self, least_batch: int = 0) -> SnapreplayError | None:
        """Examine as `examine` does, again where the owner has continued meanwhile, and what it wrote looked like a
        lost end. The log must have `least_batch`, whose commit was answered.

        Raises:
            OwnerWentOn: the owner continued each time.
        """
        self._least_batch = least_batch
        refusal: SnapreplayError | None = None
        for _ in range(EXAMINATIONS_MAX):
            self._progress.started()
            self.end_offset = NO_OFFSET
            refusal = await self.examine()
            if not isinstance(refusal, _OR_OVERTAKEN) or not await self._continues():
                return refusal
        raise OwnerWentOn(f"{self._log} was written to during each of {EXAMINATIONS_MAX} examinations: {refusal}")

    async def restored(self) -> FoundIncrement:
        """Restore the state of the last increment beside an owner; return the increment.

        Raises:
            OlderState: this version of the app upgrades the state first.
            RetryableError, OwnerWentOn: it could not be found out.
            SnapreplayError: a recovery would fail with it; it has the hint of a FAILED partition.
        """
        error = await self.examine_beside_owner()
        if error is not None:
            raise await self.hinted(error)
        self.refuse_older()
        return self.found

    async def _continues(self) -> bool:
        """Say whether the log has grown since the last examination, now or within a moment."""
        patience = Patience()
        for _ in range(AGREED_TIMES):
            await self.forget_reader()
            if (await self._bounds()).end_offset > self._looked_to:
                return True
            await patience.pause()
        return (await self._bounds()).end_offset > self._looked_to

    async def examine_log_alone(self) -> SnapreplayError | None:
        """Examine as `examine` does, if no manifest that is ahead of the log proved anything."""
        self.executor.disregard_manifests = True
        self._recovery = Recovery(self._recovery.expected, self._recovery.mode)
        return await self.examine()

    async def bring_forward(self) -> bool:
        """Say whether the store holds the state of the last increment; else it is that of the start. An input that
        fails the examination may have ruled out a replay, but not the changes."""
        if self._advanced or self.last is None:
            return self._advanced
        event = await self.executor.perform(
            effects.Advance(_there(self._recovery.base), self.last, RestoreMode.CHANGES)
        )
        if isinstance(event, events.Advanced):
            return True
        await self._load_start()
        return False

    async def replay(self) -> None:
        """Make the state that of the start, brought forward by this code; recorded digests are not compared.

        Raises:
            StopError: a handler refuses a record that was processed, or an input is another log by now.
        """
        await self._load_start()
        base, last = _there(self._recovery.base), self.found
        checked = await input_identity.check_inputs(self._context, last.increment)
        await self.executor.follower.replay(base, last, checked.topic_ids)

    def refuse_older(self) -> None:
        """Raise OlderState if the state is to be upgraded first: this code can write nothing of it."""
        expected = self._context.expected
        if self.last is None or not self._recovery.is_older:
            return
        recorded = self.last.increment.origin.schema_version
        raise OlderState(
            f"the state of partition {expected.partition} has schema_version {recorded}, and app"
            f" {expected.app_id} upgrades it to {expected.schema_version} when it starts",
            hint="start this version first; or run the command with the version that wrote the state",
        )

    async def hinted(self, error: SnapreplayError) -> SnapreplayError:
        """Return what `examine` returned, with the hint of a FAILED partition."""
        return await with_way_out(error, self._context, self._recovery)

    async def newer(self) -> FoundIncrement | None:
        """Return the last increment, if it is newer than the one found; else None. It is also read again after a
        failed look, and once a minute.

        Raises:
            LogEndsBefore: the log does not hold that one any more.
            BrokenChain: nor does it, and another chain has gone on there.
        """
        known, bounds, now = self.found, await self._bounds(), asyncio.get_running_loop().time()
        is_doubted = self._is_doubted or now - self._seen_at >= SEE_AGAIN_SECONDS
        if bounds.end_offset == self._looked_to and not is_doubted:
            return None
        reader, newer = await self.executor.follower.reader(), None
        if bounds.end_offset > known.offset:
            unread = Bounds(max(bounds.start_offset, known.offset + 1), bounds.end_offset)
            newer = await last_increment(reader, self._log, unread)
        if newer is None or is_doubted:
            await self._see_again(reader, known, newer)
        self._looked_to, self._seen_at, self._is_doubted = bounds.end_offset, now, False
        return newer

    async def _see_again(self, reader: Reader, known: FoundIncrement, newer: FoundIncrement | None) -> None:
        why = await why_gone(reader, self._log, await reader.bounds(self._log), known)
        if why is None:
            return
        self._is_doubted = True
        if newer is None:
            raise LogEndsBefore(why)
        raise BrokenChain(
            f"{why}, and batch {newer.increment.batch} follows at offset {newer.offset}: another chain",
            expected_batch=known.increment.batch + 1,
            found_batch=newer.increment.batch,
        )

    async def follow(self, newer: FoundIncrement, at: At = lambda _: None) -> None:
        """Bring the state of the last increment to a later one, each digest compared; `at` hears of each batch that the
        store has. A replay drops the outputs. Raises as `Follower.advance`."""
        last = self.last
        if last is None or not self._advanced:
            raise AssertionError("the state of the last increment was restored")
        base = Base.of_increment(last.increment, last.offset)
        mode, ids = self._recovery.chosen_mode, newer.increment.topic_ids
        await self.executor.follower.advance(base, newer, mode, ids, at)
        self._recovery = replace(self._recovery, last=newer)
        self._followed_ids = newer.increment.topic_ids

    async def forget_reader(self) -> None:
        """Use a new client from now on, and verify the last increment again: the log may have changed unseen."""
        self._is_doubted = True
        await self.executor.follower.close_reader()

    async def close(self) -> None:
        self.executor.end_load()
        await self.executor.follower.close_reader()

    async def _load_start(self) -> None:
        match await self.executor.perform(effects.Load(self.start, self.found)):
            case events.SnapshotUnusable(snapshot_id=snapshot_id, reason=reason):
                raise StopError(f"snapshot {snapshot_id} was usable a moment ago: {reason}")
            case _:
                pass

    def _seen(self, recovery: Recovery, event: events.Event) -> None:
        self._recovery = recovery
        self._progress.phase(recovery.phase)
        self._progress.restore(fallback_from=recovery.fallback_from, fallback_reason=recovery.fallback_reason)
        self._advanced = self._advanced or isinstance(event, events.Advanced)

    async def _perform(self, effect: effects.Action) -> events.Event:
        match effect:
            case effects.Fence():
                return events.FenceDone()
            case effects.WriteClaim():
                end_offset = (await self._bounds()).end_offset
                if self.end_offset == NO_OFFSET:
                    self.end_offset = end_offset
                self._looked_to = end_offset
                return events.ClaimAcknowledged("", end_offset)
            case effects.SeeClaim():
                return events.ClaimSeen((await self._bounds()).start_offset, None)
            case effects.ReadStarts(last) if last.increment.batch < self._least_batch:
                raise EndsTooEarly(f"{self._log} ends before batch {self._least_batch}, which was committed")
            case effects.Upgrade(last):
                return events.StateWritten(last)
            case effects.AddInputs(last):
                return events.InputsAdded(last)
            case effects.BeginChain() | effects.WriteState():
                raise AssertionError(f"{effect} needs a state in memory")
            case _:
                return await self.executor.perform(effect)

    async def _bounds(self) -> Bounds:
        return await (await self.executor.follower.reader()).bounds(self._context.increments)


def _there(value: T | None) -> T:
    if value is None:
        raise AssertionError("nothing was found or loaded")
    return value

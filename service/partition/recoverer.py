"""One recovery: performs the effects that `core.recovery.step` asks for, and reports what it does."""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from dataclasses import dataclass

from snapreplay.service.core import effects, events
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.kept import Kept
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.recovery import Limits, Recovery, step
from snapreplay.service.core.road import Road
from snapreplay.service.core.search import Found
from snapreplay.service.core.stops import DuplicateInstance, LogPinned
from snapreplay.service.core.topic_changes import changes
from snapreplay.service.partition.claiming import await_claim, claim_record
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.custody import NotGiven, may_fence
from snapreplay.service.partition.findings import fingerprint_of
from snapreplay.service.partition.ownership import newer_owner
from snapreplay.service.partition.performer import Performer
from snapreplay.service.partition.publish import begin_anew, own_decision
from snapreplay.service.partition.remade import with_cause
from snapreplay.service.partition.report import Reporter
from snapreplay.service.partition.starts import LogCut
from snapreplay.service.partition.tasks import ended
from snapreplay.service.partition.ways_out import with_way_out
from snapreplay.service.ports import Producer
from snapreplay.snapshots.errors import ReleaseError, SnapreplayError
from snapreplay.snapshots.format.records import NO_OFFSET, OWN_KIND, Claim
from snapreplay.snapshots.state.contract import Store

log = logging.getLogger("snapreplay.partition")

PIN_SLACK_MS = 15_000  # brokers look for transactions over their timeout every 10 s


class Superseded(ReleaseError):
    """The log shows a newer claim: another process owns the partition."""

    def __init__(self, newer: Claim, partition: int) -> None:
        super().__init__(
            f"process {newer.pid} on host {newer.host} has claimed partition {partition} after us",
            host=newer.host,
            pid=newer.pid,
            instance_id=newer.instance_id,
        )
        self.newer = newer


@dataclass(frozen=True)
class Recovered:
    """A LIVE partition: its producer is fenced in, its store is the last committed state.

    `records_since_snapshot` were applied after the snapshot it started from; `snapshot_now` when that snapshot
    was not the newest, or the road not the preferred one, so that the next recovery need not find the same damage.
    `seconds_since_snapshot`: of a state that was still in memory; else 0.
    """

    producer: Producer
    chain: Chain
    records_since_snapshot: int
    snapshot_now: bool
    seconds_since_snapshot: float = 0.0


class Recoverer:
    """Use once. `recover()` ends with a `Recovered`, or raises what only others can solve."""

    def __init__(
        self,
        context: Context,
        store: Store,
        reporter: Reporter,
        kept: Kept | None = None,
        *,
        insists: bool = False,
    ) -> None:
        """`kept`: what `store` holds already; `insists`: it is the only copy, and nobody else could restore it."""
        self._insists = insists
        self._context = context
        self._store = store
        self._reporter = reporter
        self.kept = kept
        """What the store holds; None once it was given up for what the log leads to."""
        self.last: Found | None = None
        """The last increment that was found in the log."""
        self._performer = Performer(context, store, reporter, kept)
        self._producer: Producer | None = None
        self._began_at = self._claimed_at = 0.0
        self._owner_epoch = NO_OFFSET
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """What it waits for may be there: the next attempt begins now."""
        self._woken.set()

    async def recover_unless(self, interrupted: asyncio.Event) -> Recovered | None:
        """As `recover`; None when `interrupted` came first: an interrupted restore loses nothing."""
        loop = asyncio.get_running_loop()
        recovery = loop.create_task(self.recover())
        waiting = loop.create_task(interrupted.wait())
        try:
            await asyncio.wait([recovery, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not recovery.done():
                await _given_up(recovery)
                return None
            return recovery.result()
        except asyncio.CancelledError:
            await _given_up(recovery)
            raise
        finally:
            await ended(waiting)

    async def recover(self) -> Recovered:
        """
        Raises:
            Superseded: a newer owner exists.
            StopError, UsageError: an operator must act.
        """
        backoff = self._context.settings.restore
        limits = Limits(
            self._context.view.transaction_timeout_max_ms + PIN_SLACK_MS,
            backoff.retry_backoff_ms,
            backoff.retry_backoff_max_ms,
        )
        recovery = Recovery(
            self._context.expected, preferred_road(self._context, self._store), limits, self.kept
        )
        self._reporter.restore_started()
        self._began_at = asyncio.get_running_loop().time()
        try:
            recovered = await self._run(recovery)
            await self._performer.close_reader()
            self._producer = None  # handed over: from here on it is not ours to discard
            return recovered
        finally:
            self._performer.end_load()
            await self._discard_producer()
            await self._performer.close_reader()

    async def _run(self, recovery: Recovery) -> Recovered:
        event: events.Event = events.Begin()
        while True:
            recovery, effect = step(recovery, event)
            self.kept = recovery.kept
            if isinstance(event, events.WindowRead):
                self.last = event.found
            self._report(recovery)
            match effect:
                case effects.GoLive():
                    return self._recovered(effect)
                case effects.Fail(error):
                    await self._raise_superseded(recovery, error)
                    explained = await with_cause(error, self._context, recovery.last)
                    raise await with_way_out(explained, self._context, recovery)
                case effects.Yield(newer):
                    raise Superseded(newer, self._context.partition)
                case effects.Wait(delay_ms, error):
                    self._reporter.retrying(error)
                    self._performer.end_load()
                    await self._pause(delay_ms / 1000)
                    event = events.Begin()
                case _:
                    event = await self._attempt(effect)

    async def _raise_superseded(self, recovery: Recovery, error: SnapreplayError) -> None:
        """What looks like lost or damaged logs to an owner that stood still in between may be what its successor
        wrote and trimmed meanwhile.

        Raises:
            Superseded: a newer owner exists.
            Unreachable, ReadStalled: the log could not be asked.
        """
        if recovery.owner_epoch < 0 or isinstance(error, DuplicateInstance | LogPinned):
            return  # a log that is pinned before our claim shows nothing behind it
        self._reporter.failed(error)  # before half a minute of asking
        known_offset = error.increment_offset if isinstance(error, LogCut) else NO_OFFSET
        newer = await newer_owner(self._context, recovery.owner_epoch, known_offset)
        if newer is not None:
            raise Superseded(newer, self._context.partition) from error

    async def _pause(self, seconds: float) -> None:
        self._woken.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)

    async def _attempt(self, effect: effects.Effect) -> events.Event:
        try:
            return await self._perform(effect)
        except NotGiven:
            raise  # nobody knows for how long
        except SnapreplayError as error:
            return events.EffectFailed(error)

    async def _perform(self, effect: effects.Effect) -> events.Event:
        match effect:
            case effects.Fence():
                return await self._fence()
            case effects.WriteClaim():
                return await self._claim()
            case effects.SeeClaim():
                return await self._see_claim(effect)
            case effects.BeginAnew():
                return await self._begin_anew(effect)
            case effects.Wait() | effects.GoLive() | effects.Yield() | effects.Fail():
                raise AssertionError(f"{effect} is not performed but ends or pauses the recovery")
            case _:
                return await self._performer.perform(effect)

    async def _fence(self) -> events.Event:
        await self._discard_producer()
        await self._performer.close_reader()
        nobody_else = await may_fence(
            self._context, self.kept, self._began_at, insists=self._insists
        )
        self._producer = await self._context.cluster.fence(self._context.transactional_id)
        return events.FenceDone(self._producer.lineage, nobody_else)

    async def _claim(self) -> events.Event:
        claim_id = uuid.uuid4().hex
        record = claim_record(self._context, claim_id)
        if self._producer is None:
            raise AssertionError("claiming comes after the fence")
        offsets = await self._producer.commit(self._context.partition, (), (record,))
        self._claimed_at = asyncio.get_running_loop().time()
        self._owner_epoch = offsets[0]
        return events.ClaimAcknowledged(claim_id, offsets[0])

    async def _see_claim(self, effect: effects.SeeClaim) -> events.Event:
        if effect.fresh_client:
            await self._performer.close_reader()
        reader = await self._performer.reader()
        return await await_claim(self._context, reader, effect, self._claimed_at)

    async def _begin_anew(self, effect: effects.BeginAnew) -> events.Event:
        if self._producer is None:
            raise AssertionError("beginning anew comes after the fence")
        context = self._context
        finding = f"{OWN_KIND}-{fingerprint_of(context, effect.facts)}"
        log.error(
            "partition %d: %s: it is written now (%s)", context.partition, effect.problem, finding
        )
        decision = own_decision(context, finding, effect.problem)
        begun = await begin_anew(
            context,
            self._producer,
            self._owner_epoch,
            self._store,
            effect.standing,
            decision,
            self._reporter,
            outputs=effect.outputs,
        )
        return events.Begun(Found(begun.increment, begun.offset))

    def _recovered(self, live: effects.GoLive) -> Recovered:
        if self._producer is None:
            raise AssertionError("LIVE comes after the fence")
        context = self._context
        chain = Chain(
            context.origin,
            live.owner_epoch,
            live.last.increment,
            live.last.offset,
            context.settings.retention.snapshots_kept,
            fallback_from=live.fallback_from,
            topic_ids=self._performer.topic_ids,
        )
        moved = self._moved_snapshots(live.last) if self.kept is not None else None
        if moved is not None:
            chain = chain.in_new_topic(context.snapshots.topic, moved)
        return Recovered(
            self._producer,
            chain,
            self._performer.records_since_snapshot,
            live.fell_back or moved is not None,
            self._performer.seconds_since_snapshot,
        )

    def _moved_snapshots(self, last: Found) -> str | None:
        """The new id of T-QuanLiang, when it is another topic than the last increment says: nothing was loaded from it,
        so nothing says that it holds what its pointers lead to."""
        topic = self._context.snapshots.topic
        changed = changes([topic], last.increment.topic_ids, self._performer.topic_ids)
        return changed[0].found_id if changed else None

    def _report(self, recovery: Recovery) -> None:
        if recovery.phase is not Phase.LIVE:  # the runner enters it, when all of it is there
            self._reporter.phase(recovery.phase)
        self._reporter.restore(
            attempt=recovery.attempt,
            fallback_from=recovery.fallback_from,
            fallback_reason=recovery.fallback_reason,
        )

    async def _discard_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.discard()


async def _given_up(recovery: asyncio.Task[Recovered]) -> None:
    """End it; if it has just succeeded all the same, its producer is ours to discard."""
    await ended(recovery)
    if not recovery.cancelled() and recovery.exception() is None:
        await recovery.result().producer.discard()


def preferred_road(context: Context, store: Store) -> Road:
    """Without changes in the log there is only replay; a state that is no map never writes any."""
    if context.settings.changes and store.keeps_changes:
        return Road(context.settings.restore.road)
    return Road.REPLAY

"""One recovery: performs the effects that `core.recovery.step` asks for, and reports what it does."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.upgrade import upgrading
from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.service.core import custody, effects, events
from snapreplay.service.core.batch_failures import records_in
from snapreplay.service.core.chain import Chain, standing_for
from snapreplay.service.core.inspected import changes
from snapreplay.service.core.owners import Limits, Superseded
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.refusals import DuplicateInstance, HangingTransaction
from snapreplay.service.core.retained import Warm
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.snapshot_policy import Unpointed
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.ports import Producer
from snapreplay.service.publish.owned import appeared, await_claim, claim_record, commit_change, fenced_by_owner
from snapreplay.service.publish.state import Begun, begin_chain, by_process, own_decision, write_state
from snapreplay.service.recovery.acceptable_failures import fingerprint_of, with_cause, with_way_out
from snapreplay.service.recovery.executor import RecoveryExecutor, attempt, preferred_mode
from snapreplay.service.recovery.memory import Memory, require_no_other_fence
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.service.runtime.rates import Worked
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import unless, within
from snapreplay.service.runtime.witnesses import behind_witness
from snapreplay.service.topics.increments import decision_of, decisions_of, raise_superseded
from snapreplay.service.topics.requirements import is_broadcast
from snapreplay.snapshots.format.records import NO_OFFSET, OWN_KIND, UPGRADED_KIND, Increment
from snapreplay.state.composite import Store
from snapreplay.state.digest import Digest
from snapreplay.state.recorded import Recorded

log = logging.getLogger("snapreplay.partition")

PIN_SLACK_MS = 15_000  # brokers look for transactions over their timeout every 10 s


class Recovered(msgspec.Struct, frozen=True):
    """A LIVE partition: its producer has fenced every older one, its store is the last committed state.
    `unpointed.fell_back`: a snapshot is wanted at once, so that the next recovery need not find the same damage."""

    producer: Producer
    store: Store
    chain: Chain
    unpointed: Unpointed
    worked: Worked


class RecoveryDriver:
    """A recovery from a fence on; use it once. `recover()` returns, or raises what only others can solve."""

    def __init__(self, context: Context, memory: Memory, reporter: Reporter, *, insists: bool = False) -> None:
        """Take `insists`: what `memory` holds is the only copy, and no other process could restore it."""
        self._insists = insists
        self._context = context
        self._memory = memory
        self._store = memory.own()
        self._reporter = reporter
        self._executor = RecoveryExecutor(context, self._store, reporter)
        self._producer: Producer | None = None
        self._began_at = self._claimed_at = 0.0
        self._owner_epoch = NO_OFFSET
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Begin the next attempt now: the topic that it waits for may exist."""
        self._woken.set()

    async def recover_unless(self, interrupted: asyncio.Event) -> Recovered | None:
        """Recover as `recover` does; None when `interrupted` came first: an interrupted restore loses nothing."""
        recovered = None
        try:
            recovered = await unless(interrupted, self.recover())
            return recovered
        finally:
            if recovered is None:  # it may have succeeded all the same
                await self._discard_producer()

    async def recover(self) -> Recovered:
        """Recover.

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
            self._context.expected, preferred_mode(self._context), limits, self._memory.kept, copy=self._memory.copy
        )
        self._reporter.started()
        self._began_at = asyncio.get_running_loop().time()
        try:
            return await self._run(recovery)
        except BaseException:
            await self._discard_producer()
            raise
        finally:
            self._executor.end_load()
            await self._executor.follower.close_reader()

    async def _run(self, recovery: Recovery) -> Recovered:
        while True:
            async with self._context.turns.one():
                recovery, end = await attempt(recovery, self._perform, self._seen)
            match end:
                case effects.GoLive():
                    return self._recovered(end)
                case effects.Fail(error):
                    await self._raise_superseded(recovery, error)
                    if isinstance(error, IncrementsBehind):  # perhaps before the fence
                        recovery = replace(recovery, last=error.found)
                        self._memory.last = error.found
                    explained = await with_cause(error, self._context, recovery.last)
                    raise await with_way_out(explained, self._context, recovery)
                case effects.GiveWay(newer):
                    raise Superseded(newer, self._context.partition)
                case effects.Wait(delay_ms, error):
                    self._reporter.retrying(error)
                    self._executor.end_load()
                    self._woken.clear()
                    await within(delay_ms / 1000, self._woken)
                case _:
                    assert_never(end)

    async def _raise_superseded(self, recovery: Recovery, error: SnapreplayError) -> None:
        """Ask for a newer owner: an owner that was suspended may take what its successor wrote and trimmed for a
        damaged log.

        Raises:
            Superseded: a newer owner exists.
        """
        if recovery.owner_epoch < 0 or isinstance(error, DuplicateInstance | HangingTransaction):
            return  # a log that is pinned before our claim shows nothing behind it
        self._reporter.failed(error)  # before 15 s of asking
        await raise_superseded(self._context, recovery.owner_epoch, error)

    async def _perform(self, effect: effects.Action) -> events.Event:
        match effect:
            case effects.Fence():
                return await self._fence()
            case effects.WriteClaim():
                return await self._claim()
            case effects.SeeClaim():
                if effect.fresh_client:
                    await self._executor.follower.close_reader()
                reader = await self._executor.follower.reader()
                return await await_claim(self._context, reader, effect, self._claimed_at)
            case effects.ReadStarts(last):
                reader = await self._executor.follower.reader()
                self._reporter.update(decisions=await decisions_of(reader, self._context.increments, last))
                return await self._executor.perform(effect)
            case effects.Reenter(warm=Warm.MERGED, last=last):
                event = await self._executor.perform(effect)
                if isinstance(event, events.Reentered):  # it is not counted yet
                    applied = last.increment.record_count
                    self._reporter.count(applied, records_in(last.increment) - applied)
                return event
            case effects.BeginChain():
                return await self._begin_chain(effect)
            case effects.WriteState():
                return await self._write_state(effect)
            case effects.Upgrade(last):
                return await self._upgrade(last)
            case effects.AddInputs(last, topics):
                return await self._add_inputs(last, topics)
            case _:
                return await self._executor.perform(effect)

    async def _fence(self) -> events.Event:
        await self._discard_producer()
        await self._executor.follower.close_reader()
        unbroken = await require_no_other_fence(self._context, self._memory, self._began_at, insists=self._insists)
        self._producer = await fenced_by_owner(self._context)
        return events.FenceDone(self._producer.lineage, unbroken)

    async def _claim(self) -> events.Event:
        claim_id = uuid.uuid4().hex
        offsets = await self._owned().commit(self._context.partition, (), (claim_record(self._context, claim_id),))
        self._claimed_at = asyncio.get_running_loop().time()
        self._owner_epoch = offsets[0]
        self._reporter.claimed(offsets[0])
        return events.ClaimAcknowledged(claim_id, offsets[0])

    async def _begin_chain(self, effect: effects.BeginChain) -> events.Event:
        """Write the state, unless the witness tells of a later one: the coordinator may have lost a fence."""
        context, kept = self._context, self._memory.kept
        if kept and await behind_witness(context, kept.held):
            raise custody.disputed(context.expected, kept, self._memory.last)
        finding = f"{OWN_KIND}-{fingerprint_of(context, effect.facts)}"
        log.error("partition %d: %s and is written now (%s)", context.partition, effect.problem, finding)
        begun = await begin_chain(
            context,
            self._owned(),
            self._owner_epoch,
            self._store,
            effect.standing,
            own_decision(context, finding, effect.problem),
            self._reporter,
        )
        return self._decided(begun)

    async def _write_state(self, effect: effects.WriteState) -> events.Event:
        """Write the state in the chain as it is: it still has the ids of the inputs that were processed."""
        context, last = self._context, effect.last
        log.error("partition %d: %s; the state in memory is written now", context.partition, effect.why)
        topic = context.snapshots.topic
        moved = _moved(topic, last, await context.cluster.topic_ids([topic]))
        kept = self._memory.kept
        chain = self._chain(last, kept.fallback_from if kept is not None else None, moved)
        return events.StateWritten(await write_state(context, self._owned(), chain, self._store, self._reporter))

    async def _upgrade(self, last: FoundIncrement) -> events.Event:
        """Write the upgraded state. If that fails, the log still leads to the one before."""
        context = self._context
        standing, decision = await _upgraded(context, self._store, last, self._executor.topic_ids)
        log.warning("partition %d: %s", context.partition, decision["decided"])
        producer, epoch = self._owned(), self._owner_epoch
        begun = await begin_chain(context, producer, epoch, self._store, standing, decision, self._reporter)
        self._executor.records_since_snapshot = 0
        return self._decided(begun)

    async def _add_inputs(self, last: FoundIncrement, topics: Sequence[str]) -> events.Event:
        context, executor = self._context, self._executor
        change = await appeared(context, last.increment, topics)
        if not change:
            return events.InputsAdded(last)
        is_internal = set(topics) <= set(context.app.internal_names)
        reason = "the app declares these internal topics" if is_internal else "they match a pattern of the inputs"
        if all(map(is_broadcast, topics)):
            reason = "they are the partitions of broadcast tables"
        decision = change.decision(context.increments, last, reason, by_process(context))
        log.info("partition %d: %s", context.partition, decision["decided"])
        committed = await commit_change(context, self._owned(), self._owner_epoch, last, change, decision)
        executor.topic_ids = {**executor.topic_ids, **change.topic_ids}
        self._tell(committed)
        return events.InputsAdded(committed)

    def _decided(self, begun: Begun) -> events.Event:
        found = FoundIncrement(begun.increment, begun.offset)
        self._tell(found)
        return events.StateWritten(found)

    def _tell(self, found: FoundIncrement) -> None:
        decision = decision_of(found.increment, found.offset)
        self._reporter.update(decisions=(decision, *self._reporter.status.decisions))

    def _owned(self) -> Producer:
        if self._producer is None:
            raise AssertionError("this comes after the fence")
        return self._producer

    def _chain(
        self,
        last: FoundIncrement,
        fallback_from: str | None,
        moved: str | None,
        topic_ids: Mapping[str, str] | None = None,
        position_anchors: Mapping[str, PositionAnchor] | None = None,
    ) -> Chain:
        """Continue the chain; `moved`: the new id of the snapshots topic, if the pointers may not be valid in it."""
        context = self._context
        chain = Chain(
            context.origin,
            self._owner_epoch,
            last.increment,
            last.offset,
            context.settings.retention.snapshots_kept,
            fallback_from=fallback_from,
            topic_ids=topic_ids,
            recorded=context.recorded_after(last.increment),
            position_anchors=position_anchors,
        )
        return chain if moved is None else chain.in_new_topic(context.snapshots.topic, moved)

    def _recovered(self, live: effects.GoLive) -> Recovered:
        topic_ids, moved, kept = self._executor.topic_ids, None, self._memory.kept
        if kept is not None:  # nothing was loaded from it
            moved = _moved(self._context.snapshots.topic, live.last, topic_ids)
        chain = self._chain(live.last, live.fallback_from, moved, topic_ids, self._executor.position_anchors)
        self._tell_version(live.last)
        self._reporter.entries(self._executor.largest_entries)
        fell_back = live.fell_back or moved is not None
        unpointed = kept.unpointed if kept else Unpointed(self._executor.records_since_snapshot)
        unpointed = replace(unpointed, fell_back=fell_back, mended_from_batch=chain.batch)
        return Recovered(self._owned(), self._store, chain, unpointed, self._executor.worked)

    def _tell_version(self, last: FoundIncrement) -> None:
        context, before = self._context, last.increment.origin.app_version
        if before != context.app.version:
            log.info(
                "partition %d: app version %s continues from version %s, at batch %d",
                context.partition,
                context.app.version,
                before,
                last.increment.batch,
            )

    def _seen(self, recovery: Recovery, event: events.Event) -> None:
        if self._memory.kept is not None and recovery.kept is None:  # no state is only in memory
            self._reporter.note(recoverable=None, unrecoverable_reason="")
        self._memory.kept, self._memory.copy = recovery.kept, recovery.copy
        if isinstance(event, events.WindowRead):
            self._memory.last = event.found
        if recovery.phase is not Phase.LIVE:  # the runner enters it, when all of it is there
            self._reporter.phase(recovery.phase)
        self._reporter.restore(
            attempts=recovery.attempt, fallback_from=recovery.fallback_from, fallback_reason=recovery.fallback_reason
        )

    async def _discard_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.discard()


def _moved(topic: str, last: FoundIncrement, topic_ids: Mapping[str, str]) -> str | None:
    """Return the new id of a topic, when it is another one than the last increment says."""
    changed = changes([topic], last.increment.topic_ids, topic_ids)
    return changed[0].found_id if changed else None


async def _upgraded(
    context: Context, store: Store, last: FoundIncrement, topic_ids: Mapping[str, str]
) -> tuple[Increment, dict[str, str]]:
    """Upgrade the state after `last` in place; return the increment that stands for the new state, and the decision.

    Raises:
        UpgradeFailed, StoredValueUnreadable, UnknownStore: the state is as it was.
    """
    app, increment = context.app, last.increment
    recorded, before = increment.origin.schema_version, store.digest
    await run_cooperatively(upgrading(app.upgrades.values(), recorded, store))
    values = Recorded(increment.fields, increment.layouts).without(app.upgrades_from(recorded))
    standing = msgspec.structs.replace(
        standing_for(last, store.digest, store.store_digests),
        topic_ids=dict(topic_ids),
        fields=values.fields,
        layouts=values.layouts,
    )
    return standing, _upgrade_decision(context, last, before, store.digest)


def _upgrade_decision(context: Context, last: FoundIncrement, before: Digest, after: Digest) -> dict[str, str]:
    app, increment = context.app, last.increment
    recorded = increment.origin.schema_version
    facts = f"{context.increments} {last.offset} {app.version} {after}"
    return {
        "finding": f"{UPGRADED_KIND}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}",
        "problem": f"the state after batch {increment.batch} was written with schema_version {recorded}, by app version"
        f" {increment.origin.app_version}",
        "decided": f"upgraded to schema_version {app.schema_version} by app version {app.version}:"
        f" {counted(before.count, 'entry')} became {after.count:,}; digest {before} became {after}; no outputs were"
        " written",
        "reason": f"the app declares an upgrade from schema_version {recorded}",
        "by": by_process(context),
    }

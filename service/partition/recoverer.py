"""One recovery: performs the effects that `core.recovery.step` asks for, and reports what it does."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import assert_never

from snapreplay.service.core import effects, events
from snapreplay.service.core.caution import records_in
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.kept import Kept, Warm
from snapreplay.service.core.located import DuplicateInstance
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.recovery import Limits, Recovery, step
from snapreplay.service.core.road import Road
from snapreplay.service.partition import increments, inputs, starts
from snapreplay.service.partition.advance import Tally, advance, prove
from snapreplay.service.partition.claiming import await_claim, claim_record
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.decided import decisions_of
from snapreplay.service.partition.findings import with_way_out
from snapreplay.service.partition.increments import Base, ChangesLost
from snapreplay.service.partition.loading import load_manifest, load_state, reader_reaching
from snapreplay.service.partition.ownership import newer_owner
from snapreplay.service.partition.report import Reporter
from snapreplay.service.ports import OffsetTrimmed, Producer, Reader
from snapreplay.service.status import SnapshotUsed
from snapreplay.snapshots.errors import DamagedError, RebuildError, ReleaseError, SnapreplayError
from snapreplay.snapshots.format.records import Claim, Pointer
from snapreplay.snapshots.plan import FromGenesis, FromSnapshot
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
    """

    producer: Producer
    chain: Chain
    records_since_snapshot: int
    snapshot_now: bool


class Recoverer:
    """Use once. `recover()` ends with a `Recovered`, or raises what only others can solve."""

    def __init__(
        self, context: Context, store: Store, reporter: Reporter, kept: Kept | None = None
    ) -> None:
        """`kept`: what `store` holds already."""
        self._context = context
        self._store = store
        self._reporter = reporter
        self._kept = kept
        self._producer: Producer | None = None
        self._log_reader: Reader | None = None
        self._base: Base | None = None
        self._records_since = 0
        self._claimed_at = 0.0
        self._loading = False

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
            self._context.expected, preferred_road(self._context, self._store), limits, self._kept
        )
        self._reporter.restore_started()
        try:
            recovered = await self._run(recovery)
            await self._close_log_reader()
            self._producer = None  # handed over: from here on it is not ours to discard
            return recovered
        finally:
            self._end_load()
            await self._discard_producer()
            await self._close_log_reader()

    async def _run(self, recovery: Recovery) -> Recovered:
        event: events.Event = events.Begin()
        while True:
            recovery, effect = step(recovery, event)
            self._report(recovery)
            match effect:
                case effects.GoLive():
                    return self._recovered(effect)
                case effects.Fail(error):
                    await self._raise_superseded(recovery, error)
                    raise with_way_out(error, self._context, recovery.last)
                case effects.Yield(newer):
                    raise Superseded(newer, self._context.partition)
                case effects.Wait(delay_ms, error):
                    self._reporter.failed(error)
                    self._end_load()
                    await asyncio.sleep(delay_ms / 1000)
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
        if recovery.owner_epoch < 0 or isinstance(error, DuplicateInstance):
            return
        newer = await newer_owner(self._context, recovery.owner_epoch)
        if newer is not None:
            raise Superseded(newer, self._context.partition) from error

    async def _attempt(self, effect: effects.Effect) -> events.Event:
        try:
            return await self._perform(effect)
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
            case effects.ReadWindow(window):
                reader = await self._reader()
                found = await increments.last_in_window(reader, self._context.increments, window)
                return events.WindowRead(found)
            case effects.ReadStarts(last):
                log_reader = await self._reader()
                decisions = await decisions_of(log_reader, self._context.increments, last)
                self._reporter.update(decisions=decisions)
                return events.StartsRead(await starts.read_starts(self._context, last))
            case effects.Reenter() | effects.Load():
                return await self._have_state(effect)
            case effects.Advance():
                return await self._advance(effect)
            case effects.CheckInputs(last):
                await inputs.check_inputs(self._context, last.increment)
                return events.InputsChecked()
            case effects.Wait() | effects.GoLive() | effects.Yield() | effects.Fail():
                raise AssertionError(f"{effect} is not performed but ends or pauses the recovery")
            case _:
                assert_never(effect)

    async def _fence(self) -> events.Event:
        await self._discard_producer()
        await self._close_log_reader()
        self._producer = await self._context.cluster.fence(self._context.transactional_id)
        return events.FenceDone()

    async def _claim(self) -> events.Event:
        claim_id = uuid.uuid4().hex
        record = claim_record(self._context, claim_id)
        if self._producer is None:
            raise AssertionError("claiming comes after the fence")
        offsets = await self._producer.commit(self._context.partition, (), (record,))
        self._claimed_at = asyncio.get_running_loop().time()
        return events.ClaimAcknowledged(claim_id, offsets[0])

    async def _see_claim(self, effect: effects.SeeClaim) -> events.Event:
        if effect.fresh_client:
            await self._close_log_reader()
        reader = await self._reader()
        return await await_claim(self._context, reader, effect, self._claimed_at)

    async def _have_state(self, effect: effects.Reenter | effects.Load) -> events.Event:
        if isinstance(effect, effects.Reenter):
            return self._reenter(effect)
        return await self._load(effect)

    def _reenter(self, effect: effects.Reenter) -> events.Event:
        store, last, kept = self._store, effect.last, self._kept
        if kept is None:
            raise AssertionError("re-entering needs something that was kept")
        if effect.warm is Warm.MERGED and last.increment.ranges:  # without: it only pointed
            store.merge()
        store.drop()  # what was applied on top of it, too
        store.stream_time_ms = last.increment.stream_time_ms
        if store.digest != last.increment.digest:
            log.error(
                "partition %d: the state in memory has digest %s, batch %d recorded %s: restoring in full",
                self._context.partition,
                store.digest,
                last.increment.batch,
                last.increment.digest,
            )
            return events.KeptUnusable()
        if effect.warm is Warm.MERGED:  # nobody has counted it
            applied = last.increment.record_count
            self._reporter.count(applied, records_in(last.increment) - applied)
        self._kept = kept.after(last)
        self._records_since = self._kept.records_since_snapshot
        self._reporter.warm(effect.warm, store.digest.count if store.digest else 0)
        proof = prove(store, last.increment, Tally())
        if proof is not None:
            self._reporter.proven(proof)
        return events.Reentered()

    async def _load(self, effect: effects.Load) -> events.Event:
        await self._begin_load()
        # What was tried before was not used after all.
        self._reporter.restore(snapshot=None, warm=None, proof=None)
        match effect.start:
            case FromGenesis(genesis, log_start_offset):
                self._store.clear()
                self._base = Base.before_genesis(genesis, log_start_offset)
                return events.StartLoaded()
            case FromSnapshot(pointer):
                return await self._load_snapshot(pointer)
            case _:
                assert_never(effect.start)

    async def _load_snapshot(self, pointer: Pointer) -> events.Event:
        context = self._context
        reader = await reader_reaching(context, pointer.manifest_offset)
        try:
            manifest = await load_manifest(reader, context.snapshots, pointer)
            size_bytes = sum(ref.size_bytes for ref in manifest.chunks)
            self._reporter.snapshot_used(
                SnapshotUsed(
                    manifest.snapshot_id,
                    manifest.batch,
                    pointer.manifest_offset,
                    manifest.entry_count,
                    size_bytes,
                    manifest.created_at_ms / 1000,
                    len(manifest.chunks),
                )
            )
            await load_state(
                reader,
                context.snapshots,
                manifest,
                context.app.schema_version,
                self._store,
                lambda done, total: self._reporter.progress("bytes", 0, done, total),
            )
        except RebuildError as error:
            log.warning("partition %d: snapshot unusable: %s", context.partition, error)
            return events.SnapshotUnusable(pointer.snapshot_id, error.message)
        finally:
            await reader.close()
        self._reporter.restore(entries=manifest.entry_count)
        self._base = Base.of_snapshot(manifest)
        return events.StartLoaded()

    async def _advance(self, effect: effects.Advance) -> events.Event:
        context, base, last = self._context, self._base, effect.last
        if base is None:
            raise AssertionError("advancing comes after loading")
        reader = await self._reader()
        walk = increments.walk(reader, context.increments, base, last.offset)
        if base.batch < last.increment.batch:
            self._reporter.restore(road=effect.road.value)
            if effect.road is Road.REPLAY:  # an input that ends too early would be waited for
                await inputs.check_inputs(context, last.increment)
                await inputs.check_policies(context)
        try:
            tally = await advance(
                context, self._store, walk, effect.road, self._reporter, base, last.increment
            )
        except (ChangesLost, DamagedError, OffsetTrimmed) as error:
            log.warning("partition %d: no way by %s: %s", context.partition, effect.road, error)
            return events.RoadClosed(effect.road, error)
        proof = prove(self._store, last.increment, tally)
        if proof is not None:
            self._reporter.proven(proof)
        self._records_since = tally.records
        return events.Advanced(tally.damage)

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
        )
        return Recovered(self._producer, chain, self._records_since, live.fell_back)

    def _report(self, recovery: Recovery) -> None:
        if recovery.phase is not Phase.LIVE:  # the runner enters it, when all of it is there
            self._reporter.phase(recovery.phase)
        self._reporter.restore(
            attempt=recovery.attempt,
            fallback_from=recovery.fallback_from,
            fallback_reason=recovery.fallback_reason,
        )

    async def _reader(self) -> Reader:
        if self._log_reader is None:
            self._log_reader = await self._context.cluster.reader()
        return self._log_reader

    async def _close_log_reader(self) -> None:
        reader, self._log_reader = self._log_reader, None
        if reader is not None:
            await reader.close()

    async def _discard_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.discard()

    async def _begin_load(self) -> None:
        if not self._loading:
            await self._context.restores.acquire()
            self._loading = True

    def _end_load(self) -> None:
        if self._loading:
            self._context.restores.release()
            self._loading = False


def preferred_road(context: Context, store: Store) -> Road:
    """Without changes in the log there is only replay; a state that is no map never writes any."""
    if context.settings.changes and store.keeps_changes:
        return Road(context.settings.restore.road)
    return Road.REPLAY

"""The effects of a recovery that only read: the log, the snapshot, the changes or the input, into the store.

They need no ownership: a `RecoveryDriver` has one, an examination (`service/decisions/`) does without.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import assert_never

from snapreplay.app.ranges import PositionAnchor
from snapreplay.errors import DamagedError, RebuildError, SnapreplayError, StopError
from snapreplay.service.clock import time_of
from snapreplay.service.control.status import SnapshotUsed
from snapreplay.service.core import effects, events
from snapreplay.service.core.adoption import records_between
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.core.owners import NotAssigned
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.recovery import Recovery, step
from snapreplay.service.core.retained import Warm, WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import NO_IDS
from snapreplay.service.recovery import input_identity
from snapreplay.service.recovery.copy_in_log import resolved, restorable, topic_ids_for
from snapreplay.service.recovery.follower import DigestMismatch, Follower, Tally, prove
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.service.runtime.progress import RestoreProgress
from snapreplay.service.runtime.rates import Work, Worked
from snapreplay.service.topics import increments, log_bounds
from snapreplay.service.topics.snapshots import UNUSABLE, load_manifest, load_state, reader_reaching
from snapreplay.service.topics.targets import check_last, check_snapshot
from snapreplay.snapshots.format.records import NO_OFFSET, Pointer
from snapreplay.snapshots.log.batches import Base, ChangesLost
from snapreplay.snapshots.plan import FromGenesis, FromSnapshot, LogStarts
from snapreplay.state.composite import Store
from snapreplay.state.values import StoredValueUnreadable

Perform = Callable[[effects.Action], Awaitable[events.Event]]
Seen = Callable[[Recovery, events.Event], None]
"""Called after every event, with what has become of the recovery."""


async def attempt(recovery: Recovery, perform: Perform, seen: Seen) -> tuple[Recovery, effects.End]:
    """Recover from the fence to what ends it. What `perform` raises is an event, too; only NotAssigned is raised."""
    event: events.Event = events.Begin()
    while True:
        recovery, effect = step(recovery, event)
        seen(recovery, event)
        if isinstance(effect, effects.Wait | effects.GoLive | effects.GiveWay | effects.Fail):
            return recovery, effect
        try:
            event = await perform(effect)
        except NotAssigned:
            raise
        except SnapreplayError as error:
            event = events.EffectFailed(error)


log = logging.getLogger("snapreplay.partition")


class RecoveryExecutor:
    """Performs one effect after the other. Its user closes what it opens.

    Attributes:
        records_since_snapshot: applied after the snapshot that the state comes from.
        worked: the time since the last load began.
        largest_entries: store → bytes of the largest entry that was loaded.
        topic_ids, position_anchors: of the inputs, as they were checked.
        disregard_manifests: as an operator may decide; see `read_starts`.
    """

    def __init__(self, context: Context, store: Store, progress: RestoreProgress) -> None:
        self._context = context
        self._store = store
        self._progress = progress
        self._loading = False
        self.worked = Worked()
        self.largest_entries: Mapping[str, int] = {}
        self._mode = preferred_mode(context)
        self.follower = Follower(context, store, progress)
        self.records_since_snapshot = 0
        self.digests_compared = 0
        self.topic_ids: Mapping[str, str] = {}
        self.position_anchors: Mapping[str, PositionAnchor] = {}
        self.disregard_manifests = False

    async def perform(self, effect: effects.Reading) -> events.Event:
        """Perform an effect. Raises SnapreplayError: what it means is for the core to decide."""
        match effect:
            case effects.ReadWindow(window):
                found = await increments.last_in_window(await self.follower.reader(), self._context.increments, window)
                return events.WindowRead(found)
            case effects.ReadTopicIds(kept):
                return await topic_ids_for(self._context, kept)
            case effects.ResolveDoubt(output):
                return await resolved(self._context, output)
            case effects.ReadStarts(last):
                await check_last(await self.follower.reader(), self._context.increments, last)
                return events.StartsRead(await self._starts(last))
            case effects.Reenter():
                return await self._reenter(effect)
            case effects.Load():
                return await self.load(effect)
            case effects.Advance():
                return await self._advance(effect)
            case effects.CheckInputs(last, in_memory):
                try:
                    checked = await input_identity.check_inputs(
                        self._context, last.increment, self._progress.waiting_for
                    )
                except input_identity.REFUSALS as error:
                    way = await restorable(self._context, last.increment) if in_memory else None
                    return events.InputsRefused(error, restorable=way is not False)
                input_identity.warn_of_copies(self._context, last.increment, checked)
                self.topic_ids = {**last.increment.topic_ids, **checked.known_ids}
                self.position_anchors = checked.anchors
                recorded = last.increment.positions
                appeared = (*self._context.app.internal_names, *self._context.view.matched)
                return events.InputsChecked(tuple(name for name in appeared if name not in recorded))
            case _:
                assert_never(effect)

    def end_load(self) -> None:
        """Give back the place among `restore.concurrency`, if there is one."""
        if self._loading:
            self._context.restores.release()
            self._loading = False

    async def _starts(self, last: FoundIncrement) -> LogStarts:
        # A missing input is named here; further on it would be asked for, for minutes.
        await input_identity.checked_ids(self._context, last.increment)
        return await log_bounds.read_starts(self._context, last, disregard_manifests=self.disregard_manifests)

    async def _reenter(self, effect: effects.Reenter) -> events.Event:
        store, last = self._store, effect.last
        if not effect.unbroken:
            await self._starts(last)
        # A batch without ranges only pointed; a re-entry that was interrupted has merged already.
        if effect.warm is Warm.MERGED and not last.increment.is_empty and store.is_sealed:
            store.merge()
        store.drop()  # what was applied on top of it, too
        store.stream_time_ms = last.increment.stream_time_ms
        try:
            proof = await prove(store, last.increment, Tally())
        except DigestMismatch as error:
            log.error(  # noqa: TRY400 - a restore mends it
                "partition %d: the state in memory is not that of the last batch, restoring in full: %s",
                self._context.partition,
                error,
            )
            return events.RetainedUnusable()
        self._progress.warm(effect.warm, store.digest.count)
        self._progress.restore(proof=proof)
        return events.Reentered()

    async def load(self, effect: effects.Load) -> events.StartLoaded | events.SnapshotUnusable:
        """Load the state of the start; raise as `perform` does."""
        # What was tried before was not used after all.
        self._progress.restore(snapshot=None, warm=None, proof=None, forecast=None)
        self.worked = Worked()
        match effect.start:
            case FromGenesis(genesis, log_start_offset):
                self._store.clear()
                return events.StartLoaded(Base.before_genesis(genesis, log_start_offset))
            case FromSnapshot(pointer):
                await self._begin_load()
                return await self._load_snapshot(pointer, effect.last)
            case _:
                assert_never(effect.start)

    async def _load_snapshot(
        self, pointer: Pointer, last: FoundIncrement
    ) -> events.StartLoaded | events.SnapshotUnusable:
        context = self._context
        reader = await reader_reaching(context, pointer, self._progress.waiting_for)
        try:
            manifest = await load_manifest(reader, context.snapshots, pointer)
            log_reader = await self.follower.reader()
            await check_snapshot(log_reader, context.increments, manifest, last)
            size_bytes = sum(ref.size_bytes for ref in manifest.chunks)
            self._progress.restore(
                snapshot=SnapshotUsed(
                    manifest.snapshot_id,
                    manifest.batch,
                    pointer.manifest_offset,
                    manifest.entry_count,
                    size_bytes,
                    time_of(manifest.created_at_ms),
                    len(manifest.chunks),
                )
            )
            recorded, older = manifest.origin.schema_version, context.expected.upgrades_from
            self._foresee(size_bytes, manifest.positions, last)
            with self.worked.at(Work.LOADING):
                largest = await load_state(
                    reader,
                    context.snapshots,
                    manifest,
                    recorded if older(recorded) else context.app.schema_version,
                    self._store,
                    lambda done, total: self._progress.progress("bytes", 0, done, total),
                )
            self.largest_entries = largest
        except UNUSABLE as error:
            log.warning("partition %d: the snapshot cannot be used: %s", context.partition, error)
            refusal = error if isinstance(error, StopError) else None
            return events.SnapshotUnusable(pointer.snapshot_id, error.message, refusal)
        finally:
            await reader.close()
        self._progress.restore(entries=manifest.entry_count)
        return events.StartLoaded(Base.of_snapshot(manifest))

    async def _advance(self, effect: effects.Advance) -> events.Event:
        """Advance from the loaded snapshot, or from a warm copy. If the copy cannot be used, a full restore takes its
        place."""
        copy = effect.copy
        if copy is None:
            return await self._brought_forward(effect)
        if not await self._is_in_log(copy):
            return self._unusable(f"the increment at offset {copy.last.offset} is not the one in the copy")
        try:
            event = await self._brought_forward(effect)
        except (StopError, RebuildError) as error:
            return self._unusable(str(error))
        if isinstance(event, events.ModeUnavailable):
            return events.CopyUnusable()
        self.records_since_snapshot += copy.records_since_snapshot
        self._progress.warm(Warm.COPIED, self._store.digest.count)
        return event

    def _unusable(self, why: str) -> events.CopyUnusable:
        log.warning("partition %d: the warm copy cannot be used: %s", self._context.partition, why)
        return events.CopyUnusable()

    async def _is_in_log(self, copy: WarmCopy) -> bool:
        """Read the copy's increment again: a log that was cut may have another one of the same batch there."""
        reader = await self.follower.reader()
        found = await increments.increment_at(reader, self._context.increments, copy.last.offset)
        return found == copy.last.increment

    async def _brought_forward(self, effect: effects.Advance) -> events.Event:
        context, base, last = self._context, effect.base, effect.last
        topic_ids = NO_IDS
        if base.batch < last.increment.batch:
            await self._begin_load()
            self._progress.restore(mode=effect.mode.value)
            if base.increment_offset == NO_OFFSET:  # nothing was loaded
                self._foresee(0, base.positions, last)
            if effect.mode is RestoreMode.REPLAY:  # an input that ends too early would be waited for
                checked = await input_identity.check_inputs(context, last.increment, self._progress.waiting_for)
                topic_ids = checked.topic_ids
                await input_identity.check_policies(context, last.increment.positions)
        if effect.mode is RestoreMode.REPLAY:
            await self._index()
        try:
            with self.worked.at(Work.ADVANCING):
                tally = await self.follower.advance(base, last, effect.mode, topic_ids)
        except (ChangesLost, DamagedError, OffsetTrimmed) as error:
            log.warning("partition %d: cannot advance by %s: %s", context.partition, effect.mode, error)
            self._mode = effect.mode.other
            return events.ModeUnavailable(effect.mode, error)
        with self.worked.at(Work.FINISHING):
            proof = await prove(self._store, last.increment, tally)
        self.digests_compared = proof.batches_compared
        self._progress.restore(proof=proof)
        await self._index()  # at the end: before, each change would have to find its place
        self.records_since_snapshot = tally.handled
        return events.Advanced(tally.damage)

    def _foresee(self, size_bytes: int, positions: Mapping[str, int], last: FoundIncrement) -> None:
        records = records_between(positions, last.increment.positions)
        self._progress.restore(forecast=self._context.rates.forecast(self._mode, size_bytes, records))

    async def _index(self) -> None:
        # `checking` says again what is suppressed here, with all that it knows.
        with self.worked.at(Work.FINISHING), suppress(StoredValueUnreadable):
            await run_cooperatively(self._store.indexing())

    async def _begin_load(self) -> None:
        if not self._loading:
            await self._context.restores.acquire()
            self._loading = True


def preferred_mode(context: Context) -> RestoreMode:
    """Return the preferred mode. Without changes in the log there is only replay."""
    if context.settings.changelog.enabled:
        return RestoreMode(context.settings.restore.mode)
    return RestoreMode.REPLAY

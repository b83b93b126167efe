"""The way from the snapshot's state to the last increment's. By changes the recorded entries are folded in; by replay
the handlers run again over the recorded ranges, outputs dropped but compared. Either way each recorded digest is
compared, so the first differing batch is named. Also the errors of a recovery that does not arrive at the committed
state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

from msgspec import Struct

from snapreplay.app.batch import Feeding, Portion
from snapreplay.app.fold import Fold
from snapreplay.app.ways import go_on
from snapreplay.errors import RecordError, SnapreplayError, StopError
from snapreplay.service.control.status import DigestProof
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import NO_IDS, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import Read, feeding, run_cooperatively
from snapreplay.service.runtime.progress import RestoreProgress
from snapreplay.service.runtime.schemas import SchemasOf, fetching
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.batches import Base, ChainReader, Step, apply_changes
from snapreplay.snapshots.log.by_replay import InputDiffers, Replay
from snapreplay.snapshots.log.reading import Reading, Slice, Source
from snapreplay.state.composite import Store
from snapreplay.state.digest import Digest, wrong_stores
from snapreplay.state.steps import Steps, all_of

UNCOVERED = (
    "the app is not deterministic (`snapreplay.testing.check` names the first record), or something changed that its"
    " version does not cover (an installed package, a file, the environment)"
)
OLD_VERSION_FIRST = (
    "start the version that processed it and stop it: the snapshot that it writes at its end (snapshot.before_stop)"
    " needs no replay. Then start the new version"
)


class DigestMismatch(StopError):
    """The state after a batch is not the committed one, although every record is intact.

    Safe: Nothing is committed on top of that state. You may try a replay: it sends no outputs, and changes nothing in
    the log.
    """


class ReplayFailed(StopError):
    """A replay failed, because a handler raised for a record that was processed before."""


class OutputsDiffer(StopError):
    """In a replay by the same version of the app, a batch sends other outputs than were committed."""


class CodeChanged(StopError):
    """A replay by another version of the app gives another state or other outputs, or nothing proves that it gives
    the same."""


_NOT_ARRIVED = (CodeChanged, DigestMismatch, OutputsDiffer, ReplayFailed, InputDiffers)

At = Callable[[Step | None], None]
"""Called with the batch whose state the store has, compared; None: a batch is partly applied."""


class Tally(Struct):
    """The tally of an advance.

    Attributes:
        handled: records, skipped or not, timers and expired entries: what a snapshot would have saved.
        damage: the first increment that could not be read; the next digest shows that nothing is missing.
        has_changes: each batch with records has its changes in the log, too.
    """

    digests: int = 0
    records: int = 0
    handled: int = 0
    damage: str | None = None
    has_changes: bool = True


class Follower:
    """Brings a store to the batches of a log, without ownership: it neither fences nor writes."""

    def __init__(self, context: Context, store: Store, progress: RestoreProgress) -> None:
        self._context = context
        self._store = store
        self._progress = progress
        self._reader: Reader | None = None

    async def reader(self) -> Reader:
        """Return the reader of the increments topic, kept until `close_reader`."""
        if self._reader is None:
            self._reader = await self._context.cluster.reader()
        return self._reader

    async def close_reader(self) -> None:
        """Close it; the next call gets a new client."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def advance(
        self,
        base: Base,
        last: FoundIncrement,
        mode: RestoreMode,
        topic_ids: Mapping[str, str] = NO_IDS,
        at: At = lambda _: None,
    ) -> Tally:
        """Bring the store from the state of `base` to that after `last`. A replay reads the inputs by `topic_ids`. `at`
        hears of each batch that the store has.

        Raises:
            ChangesLost, DamagedError: by changes; the other mode may lead there. By replay, an increment cannot be
                read.
            OffsetTrimmed: by replay only; the input is gone.
            OutputsDiffer, DigestMismatch, CodeChanged, InputDiffers, ReplayFailed: STOP.
        """
        way = _Way(self._context, self._store, self._progress, base, last, mode, at)
        return await run_cooperatively(way.advance(), self._read(topic_ids))

    async def replay(self, base: Base, last: FoundIncrement, topic_ids: Mapping[str, str]) -> None:
        """Make the state what this code makes of the records up to `last`; nothing is compared. Raises InputDiffers,
        ReplayFailed."""
        replay = replay_of(self._context, self._store, base, last.increment)
        steps = followed(self._context.increments, base, last, lambda step: replayed(replay, step))
        await run_cooperatively(steps, self._read(topic_ids))

    def _read(self, topic_ids: Mapping[str, str]) -> Read:
        schemas = SchemasOf(self._context.app)
        wanted = schemas.to_write()

        async def read(source: Source) -> AsyncGenerator[Slice, None]:
            nonlocal wanted
            _, start_offset, end_offset = source
            if source.topic == self._context.increments.topic:
                log, reader = self._context.increments, await self.reader()
                async for records in reader.read(log, start_offset, end_offset):
                    yield records
                return
            partition = TopicPartition(source.topic, self._context.partition)
            async with reading(self._context.cluster, topic_ids=topic_ids) as reader:
                async for records in reader.read(partition, start_offset, end_offset):
                    if schemas.are_any and (wanted := wanted | schemas.to_read(records)):
                        await fetching(wanted, self._progress.waiting_for)
                        wanted = set()
                    yield records

        return read


def followed(
    log: TopicPartition, base: Base, last: FoundIncrement, apply: Callable[[Step], Reading[object]]
) -> Reading[None]:
    """Apply every batch after `base` up to `last`, each linked to the one before. Raises as `ChainReader`."""
    chain = ChainReader(log, base)
    source = Source(log.topic, base.read_from_offset, last.offset + 1)
    while records := (yield source):
        for record in records:
            step = chain.add(record)
            if step is not None:
                yield from apply(step)
                yield None
    chain.finish(last.increment, last.offset)


def replay_of(context: Context, store: Store, base: Base, last: Increment, feed: Feeding = feeding) -> Replay:
    """Make the replay of the batches behind `base`."""
    return Replay(context.app, store, context.partition, base.positions, last.positions, feed)


def replayed(replay: Replay, step: Step) -> Reading[dict[str, int]]:
    """Replay one batch. Returns output topic → hash of what the handlers sent. Raises as `Replay.batch`, and
    ReplayFailed."""
    try:
        applied = yield from replay.batch(step)
    except RecordError as error:
        batch = step.increment.batch
        raise ReplayFailed(
            f"replaying batch {batch}: {error.message}", hint=error.hint, record_id=error.record_id, batch=batch
        ) from error
    return applied.outputs_xxh64 if applied is not None else {}


class Comparison:
    """Compares each batch of one advance, by one mode, with its increment: call `batch` for each step, in order.

    Outputs show what handlers sent, a digest proves the state. With unchanged code both must be as recorded. Changed
    code may send something else if the digest is the recorded one.
    """

    def __init__(self, store: Store, mode: RestoreMode, version: str, partition: int) -> None:
        """Take `version` of the app that is running."""
        self._version = version
        self._partition = partition
        self._store = store
        self._mode = mode
        self.digests = 0

    def batch(self, step: Step, outputs_xxh64: dict[str, int] | None) -> None:
        """Compare a batch; `outputs_xxh64`: as replayed; None by changes, which say nothing about outputs.

        Raises:
            OutputsDiffer, DigestMismatch, CodeChanged: STOP.
            DamagedError: increments before it cannot be read, and its digest does not show that nothing is missing.
        """
        increment, computed = step.increment, self._store.digest
        differs = None
        if outputs_xxh64 is not None and outputs_xxh64 != increment.outputs_xxh64:
            differs = self._outputs_differ(step, outputs_xxh64)
            if not self._is_changed(step):
                raise differs
        if computed == increment.digest:
            self.digests += 1
            return
        for each in step.unread:  # nothing else proves that nothing of them is missing
            raise each.error
        raise differs or self._state_differs(step, computed)

    def refused(self, step: Step, error: SnapreplayError) -> SnapreplayError:
        """Say what it means that a processed record cannot be replayed."""
        return self._code_changed(step, error.message) if self._is_changed(step) else error

    def _is_changed(self, step: Step) -> bool:
        return self._mode is RestoreMode.REPLAY and step.increment.origin.app_version != self._version

    def _outputs_differ(self, step: Step, computed: Mapping[str, int]) -> SnapreplayError:
        recorded = step.increment.outputs_xxh64
        topic = next(name for name in (*recorded, *computed) if recorded.get(name) != computed.get(name))
        was, now = _hash_of(recorded.get(topic)), _hash_of(computed.get(topic))
        facts = {"topic": topic, "recorded": was, "computed": now}
        what = f"{_named(step)}: its outputs to {topic} have fingerprint {was}, but {now} when replayed"
        if self._is_changed(step):
            return self._code_changed(step, f"{what}: replaying with changed code gives other outputs", **facts)
        return OutputsDiffer(
            f"{what}; app version {self._version} then and now, written by {step.increment.origin.fingerprint}:"
            f" {UNCOVERED}",
            hint=OLD_VERSION_FIRST,
            **_place_of(step),
            **facts,
        )

    def _state_differs(self, step: Step, computed: Digest) -> SnapreplayError:
        increment, mode = step.increment, self._mode.value
        facts = {"recorded": str(increment.digest), "computed": str(computed), "mode": mode}
        what = f"{_named(step)}: digest {computed} by {mode}, but {increment.digest} was recorded"
        what += wrong_stores(increment.store_digests, self._store.store_digests)
        if self._is_changed(step):
            return self._code_changed(step, f"{what}: replaying with changed code gives another state", **facts)
        what, hint = f"{what}; written by {increment.origin.fingerprint}", OLD_VERSION_FIRST
        if self._mode is RestoreMode.REPLAY:
            what = f"{what}: {UNCOVERED}"
        else:
            hint = f"`--set restore.mode=replay`, then {go_on(self._partition)}"
        return DigestMismatch(what, hint=hint, **_place_of(step), **facts)

    def _code_changed(self, step: Step, what: str, **facts: object) -> CodeChanged:
        recorded = step.increment.origin.app_version
        return CodeChanged(
            f"{what}; it was processed by app version {recorded}, this is {self._version}",
            hint=OLD_VERSION_FIRST,
            recorded_version=recorded,
            version=self._version,
            **_place_of(step),
            **facts,
        )


def _named(step: Step) -> str:
    return f"batch {step.increment.batch} (increment at offset {step.offset})"


def _place_of(step: Step) -> dict[str, int]:
    return {"batch": step.increment.batch, "offset": step.offset}


def _hash_of(hashed: int | None) -> str:
    return "none" if hashed is None else f"{hashed:016x}"


class _Way:
    """One advance by one mode."""

    def __init__(
        self,
        context: Context,
        store: Store,
        progress: RestoreProgress,
        base: Base,
        last: FoundIncrement,
        mode: RestoreMode,
        at: At,
    ) -> None:
        self._context = context
        self._store = store
        self._progress = progress
        self._at = at
        self._base = base
        self._last = last
        self._comparison = Comparison(store, mode, context.app.version, context.partition)
        self._replay = None
        if mode is RestoreMode.REPLAY:
            self._replay = replay_of(context, store, base, last.increment, self._feeding)
        self._tally = Tally()
        self._failure: SnapreplayError | None = None

    def advance(self) -> Reading[Tally]:
        """Advance the store. After a failed replay, only find out whether all changes were recorded."""
        yield from followed(self._context.increments, self._base, self._last, self._batch)
        if self._failure is not None:
            self._failure.hint = _with_changes(self._context, self._failure.hint, self._tally)
            raise self._failure
        return self._tally

    def _batch(self, step: Step) -> Reading[None]:
        tally = self._tally
        if step.increment.changes is None and not step.increment.is_empty:
            tally.has_changes = False
        if self._failure is None:
            try:
                yield from self._applied(step)
            except _NOT_ARRIVED as error:
                if self._replay is None:
                    raise
                self._failure = error

    def _applied(self, step: Step) -> Reading[None]:
        tally, store = self._tally, self._store
        if self._replay is None or step.increment.cleared:
            self._at(None)
        if self._replay is not None:
            sent = yield from self._replayed(self._replay, step)
            self._comparison.batch(step, sent)
        elif len(step.changes) > 1 or step.unread:
            yield from self._changed(step)
        else:
            all_of(self._changed(step))  # without a pause: who reads the store meanwhile never finds a part of it
        self._at(step)
        tally.digests = self._comparison.digests
        tally.records += step.increment.record_count
        tally.handled += step.increment.handled_count
        tally.damage = tally.damage or next((u.error.message for u in step.unread), None)
        self._progress.progress(
            "records",
            sum(self._base.positions.values()),
            sum(step.increment.positions.values()),
            sum(self._last.increment.positions.values()),
        )
        self._progress.restore(records_replayed=tally.records if self._replay else 0, entries=store.digest.count)

    def _feeding(self, fold: Fold, portion: Portion) -> Steps[None]:
        """Feed the records of a batch, which are here: while they are read, the store still has the batch before."""
        self._at(None)
        return feeding(fold, portion)

    def _changed(self, step: Step) -> Steps[None]:
        yield from apply_changes(step, self._store)
        self._store.stream_time_ms = step.increment.stream_time_ms
        self._comparison.batch(step, None)

    def _replayed(self, replay: Replay, step: Step) -> Reading[dict[str, int]]:
        """Replay a batch; a refusal by code of another version than the batch's says that the code changed."""
        try:
            return (yield from replayed(replay, step))
        except ReplayFailed as error:
            meaning = self._comparison.refused(step, error)
            if meaning is error:
                raise
            raise meaning from error


def _with_changes(context: Context, hint: str, tally: Tally) -> str:
    """Name the other mode, where every batch up to the last one has recorded its changes."""
    if not tally.has_changes:
        return hint
    settings = "--set restore.mode=changes"
    if not context.settings.changelog.enabled:
        settings = f"--set changelog.enabled=true {settings}"
    mode = f"`{settings}` needs no handler: with it, {go_on(context.partition)}"
    return f"{mode}; or {hint}" if hint else mode


async def prove(store: Store, last: Increment, tally: Tally) -> DigestProof:
    """Compare the digests, which ends a recovery. Raises DigestMismatch."""
    computed = store.digest
    if computed != last.digest:
        raise DigestMismatch(
            f"the restored state has digest {computed}, but batch {last.batch} recorded {last.digest}"
            f"{wrong_stores(last.store_digests, store.store_digests)}",
            batch=last.batch,
            recorded=str(last.digest),
            computed=str(computed),
        )
    return DigestProof(str(last.digest), str(computed), max(1, tally.digests))

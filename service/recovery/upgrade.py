"""Upgrades a restored state to the app's `schema_version`, and makes the decision that the log records.

If a job has drafted the upgrade, the owner takes the draft over: it hashes every entry, and upgrades only what has
changed since. A refused draft is named in one log line, and the owner upgrades the whole state itself. The state
changes only when nothing can fail any more.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from zlib import crc32

import msgspec

from snapreplay.app.upgrade import of_maps, replacing, upgrading
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, SnapreplayError, StopError
from snapreplay.service.core import adoption
from snapreplay.service.core.adoption import Standing
from snapreplay.service.core.chain import Chain, standing_for
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Bounds, Reader
from snapreplay.service.publish.state import by_process
from snapreplay.service.recovery.follower import Follower
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.service.topics.proposals import Rejected, compared, raise_if
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import TAIL_OFFSETS_MAX, load_state, newest_first
from snapreplay.snapshots.format.records import UPGRADED_KIND, DraftOf, Increment, Manifest, Pointer
from snapreplay.snapshots.log.batches import Base
from snapreplay.state.composite import CompositeStore
from snapreplay.state.contract import TIMERS_STORE, ShardSlice, StateChanges, Store
from snapreplay.state.digest import EMPTY, MASK, Digest
from snapreplay.state.keys import stored_key
from snapreplay.state.recorded import Recorded

log = logging.getLogger("snapreplay.partition")

Keys = dict[str, dict[bytes, None]]
"""Encoded keys by store."""


async def upgraded(
    context: Context, store: Store, last: FoundIncrement, topic_ids: Mapping[str, str], follower: Follower
) -> tuple[Increment, dict[str, str], Manifest | None]:
    """Upgrade the state after `last` in place, with the draft of a job if there is one. Other tasks run between two
    steps.

    Returns:
        The increment that stands for the new state, the decision, and the draft that has exactly this state.

    Raises:
        UpgradeFailed, StoredValueUnreadable, UnknownStore: the state is as it was.
    """
    app, increment = context.app, last.increment
    recorded, before = increment.origin.schema_version, store.digest or EMPTY
    draft = await _drafted(context, store, last, topic_ids, follower)
    if draft is None:
        await run_cooperatively(upgrading(app.upgrades.values(), recorded, store))
    values = Recorded(increment.fields, increment.layouts).without(app.upgrades_from(recorded))
    standing = msgspec.structs.replace(
        standing_for(last, store.digest, store.store_digests),
        topic_ids=dict(topic_ids),
        fields=values.fields,
        layouts=values.layouts,
    )
    said = "" if draft is None else f"; {draft.said}"
    decision = _decision(context, last, before, store.digest or EMPTY, said)
    return standing, decision, draft.unchanged if draft is not None else None


def _decision(context: Context, last: FoundIncrement, before: Digest, after: Digest, said: str) -> dict[str, str]:
    app, increment = context.app, last.increment
    recorded = increment.origin.schema_version
    facts = f"{context.increments} {last.offset} {app.version} {after}"
    return {
        "finding": f"{UPGRADED_KIND}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}",
        "problem": f"the state after batch {increment.batch} was written with schema_version {recorded}, by app version"
        f" {increment.origin.app_version}",
        "decided": f"upgraded to schema_version {app.schema_version} by app version {app.version}:"
        f" {counted(before.count, 'entry')} became {after.count:,}; digest {before} became {after}; no outputs were"
        f" written{said}",
        "reason": f"the app declares an upgrade from schema_version {recorded}",
        "by": by_process(context),
    }


class DraftRefused(StopError):
    """The draft is not the upgrade of this state."""


class Taken(NamedTuple):
    """A draft that was taken over, in words. `unchanged`: its manifest, if its chunks hold the whole new state."""

    said: str
    unchanged: Manifest | None


async def _drafted(
    context: Context, store: Store, last: FoundIncrement, topic_ids: Mapping[str, str], follower: Follower
) -> Taken | None:
    """Make the state after `last` the one that a job has drafted. None: no draft can be used, and nothing was
    changed."""
    number = 0
    try:
        async with reading(context.cluster, read_committed=False, large=True) as reader:
            bounds = await reader.bounds(context.snapshots)
            for gap in _gaps(last.increment.pointers, bounds):
                async for number, manifest in newest_first(reader, context.snapshots, gap):
                    if manifest.draft_of is not None:
                        draft = _Draft(context, of_maps(store), last, topic_ids, follower)
                        return await draft.taken(reader, number)
    except (SnapreplayError, Rejected) as error:
        log.warning(
            "partition %d: the drafted upgrade at offset %d of %s is not used, so the entries are upgraded here: %s",
            context.partition,
            number,
            context.snapshots,
            error,
        )
    return None


def _gaps(pointers: Iterable[Pointer], bounds: Bounds) -> Iterable[Bounds]:
    """Yield the parts of the snapshots topic between what the owner has written, the newest first."""
    end = bounds.end_offset
    for pointer in sorted(pointers, key=lambda each: each.manifest_offset, reverse=True):
        yield _tail(max(bounds.start_offset, pointer.manifest_offset + 1), end)
        end = min(end, pointer.first_chunk_offset)
    yield _tail(bounds.start_offset, end)


def _tail(start: int, end: int) -> Bounds:
    return Bounds(min(end, max(start, end - TAIL_OFFSETS_MAX)), end)


class _Draft:
    def __init__(
        self,
        context: Context,
        store: CompositeStore,
        last: FoundIncrement,
        topic_ids: Mapping[str, str],
        follower: Follower,
    ) -> None:
        self._context, self._store, self._last, self._follower = context, store, last, follower
        self._ids = topic_ids
        self._from_schema = last.increment.origin.schema_version

    async def taken(self, reader: Reader, offset: int) -> Taken:
        context, last = self._context, self._last
        increments = await self._follower.reader()
        manifest, increment = await compared(context, reader, increments, offset, self._standing)
        raise_if(adoption.refuse_draft(manifest, increment, context.origin, self._from_schema))
        touched = _Touched()
        base = Base.of_increment(increment, manifest.increment_offset)
        if manifest.increment_offset != last.offset:
            await self._follower.changes(base, last, touched)
        found = _Entries(self._store)
        schema_version = manifest.origin.schema_version
        await load_state(reader, context.snapshots, manifest, schema_version, found, lambda *_: None, verify_sums=True)
        raise_if(adoption.refuse_entries(manifest, found.digests))
        changes = await self._changes(found, touched.keys, manifest.draft_of)
        await run_cooperatively(replacing(self._store, found.slices(), changes))
        count = sum(map(len, changes.values()))
        said = (
            f"drafted by {manifest.proposed_by} after batch {manifest.batch};"
            f" {counted(count, 'entry')} of it changed since"
        )
        sealed = not context.view.seals.writes or all(ref.sha256 for ref in manifest.chunks)
        return Taken(said, manifest if sealed and not count else None)

    def _standing(self, snapshots_start_offset: int) -> Standing:
        context, (last, offset) = self._context, (self._last.increment, self._last.offset)
        chain = Chain(context.origin, last.owner_epoch, last, offset, pointers_max=1, topic_ids=self._ids)
        version = context.app.schema_version
        topics = context.increments.topic, context.snapshots.topic
        return Standing(chain, *topics, snapshots_start_offset, version, under_way=False)

    async def _changes(
        self, found: _Entries, touched: Keys, draft: DraftOf | None
    ) -> dict[str, dict[bytes, bytes | None]]:
        """Return what the touched entries have become, and compare some others with the draft."""
        if touched and (draft is None or not draft.keeps_places):
            raise DraftRefused("batches were committed since, and entries move to other keys by this upgrade")
        timers = any(entries for name, entries in self._store.stored() if name == TIMERS_STORE)
        if touched and (timers or found.has(TIMERS_STORE)):
            raise DraftRefused("batches were committed since, and the state has timers of keys")
        wanted = {name: dict(keys) for name, keys in touched.items()}
        for name, entries in self._store.stored():
            if name != TIMERS_STORE:
                wanted.setdefault(name, {}).update(dict.fromkeys(islice(entries, 1)))
        part = of_maps(self._context.app.new_store())
        part.apply_changes({name: self._store.stored_at(name, keys) for name, keys in wanted.items()})
        keeps_places = await run_cooperatively(upgrading(self._context.app.upgrades.values(), self._from_schema, part))
        if touched and not keeps_places:
            raise DraftRefused("batches were committed since, and one of their entries moves to another key")
        changes: dict[str, dict[bytes, bytes | None]] = {name: dict(keys) for name, keys in touched.items()}
        for name, entries in part.stored():
            for key, value in entries.items():
                if key in changes.get(name, ()):
                    changes[name][key] = value
                elif found.value(name, key) != value:
                    raise DraftRefused(
                        f"it has another value of key {stored_key(key)!r} of store {name} than this process makes"
                    )
        return changes


class _Touched:
    """Takes the keys of changes."""

    def __init__(self) -> None:
        self.keys: Keys = {}

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        if cleared:
            raise DraftRefused(f"a batch since has cleared {', '.join(cleared)}")
        for name, entries in changes.items():
            self.keys.setdefault(name, {}).update(dict.fromkeys(entries))


class _Entries:
    """A `Sink` of the drafted entries, by shard; nothing of the state is changed by them."""

    def __init__(self, store: CompositeStore) -> None:
        self.stream_time_ms = -1
        self.digests: dict[str, Digest] = {}
        self._known = {*store.maps, *(name for name, _ in store.stored())}
        self._shards: dict[tuple[str, int], ShardSlice] = {}
        self._mask = store.shard_count - 1

    def clear(self, shard_count: int = 0) -> None:
        if shard_count != self._mask + 1:
            raise DamagedError(f"it has {shard_count} shards, but the state has {self._mask + 1}")

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        for part in slices:
            if store not in self._known or not part.entries:
                raise DamagedError(f"it has {counted(len(part.entries), 'entry')} in a slice of store {store!r}")
            mask, index = self._mask, part.index
            if any(crc32(key) & mask != index for key in part.entries):
                raise DamagedError(f"a slice of shard {index} has a key of another shard")
            self.digests[store] = self.digests.get(store, EMPTY).plus(
                Digest(len(part.entries), part.digest_a, part.digest_b)
            )
            before = self._shards.get((store, index))
            if before is not None:
                if not before.entries.keys().isdisjoint(part.entries):
                    raise DamagedError(f"a key of shard {index} is in it twice")
                sums = (before.digest_a + part.digest_a) & MASK, (before.digest_b + part.digest_b) & MASK
                part = ShardSlice(index, *sums, before.entries | part.entries)  # noqa: PLW2901 - both are one shard
            self._shards[store, index] = part

    def loaded(self) -> None: ...

    def has(self, store: str) -> bool:
        """Say whether there are entries of this store."""
        return any(name == store for name, _ in self._shards)

    def value(self, store: str, key: bytes) -> bytes | None:
        """Return a drafted value."""
        part = self._shards.get((store, crc32(key) & self._mask))
        return None if part is None else part.entries.get(key)

    def slices(self) -> Iterable[tuple[str, ShardSlice]]:
        """Return all entries."""
        return ((name, part) for (name, _), part in self._shards.items())

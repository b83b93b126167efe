"""The engine's side of a state of one map or several: the maps, and stored entries that no map is for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from snapreplay.state.calls import CallStore
from snapreplay.state.committed import CommittedStores, CommittedView
from snapreplay.state.contract import (
    RESERVED,
    Cursor,
    Sealed,
    ShardSlice,
    StateChanges,
    Store,
    StoreSize,
    unknown_store,
)
from snapreplay.state.cursor import Shard
from snapreplay.state.digest import DEFAULT_STORE, Digest, digest_of_stores, recorded_digests
from snapreplay.state.mapstore import MapClock, MapStore
from snapreplay.state.shards import SHARD_COUNT, Shards
from snapreplay.state.staging import encoding
from snapreplay.state.steps import Steps

_FREED_SHARDS = 8
"""Of a cleared store, given back with each batch: freeing a million entries at once takes a tenth of a second."""


class CompositeStore(Store):
    """A `Store` of one map or several. Entries of a store that the app does not have are kept as they are, digest
    included: until a batch clears them, if the app has retired the store, and otherwise until `checking` refuses them.
    """

    def __init__(self, view: Any, maps: Mapping[str, MapStore[Any, Any]], retired: Collection[str] = ()) -> None:
        """Take `view`: a `MapState` if that is the only map, else an object that has them."""
        self.view = view
        self.maps = {name: maps[name] for name in sorted(maps)}
        self.clock = MapClock()
        for store in maps.values():
            store.clock = self.clock
        self.calls = next((each for each in maps.values() if isinstance(each, CallStore)), None)
        self.retired = frozenset(retired)
        self._retires = False
        self._others: dict[str, Shards] = {}
        self._cleared: dict[str, Shards] = {}  # by the batch that is sealed
        self.to_free: list[Shard] = []
        self.is_sealed = False

    @property
    def stream_time_ms(self) -> int:
        return self.clock.stream_time_ms

    @stream_time_ms.setter
    def stream_time_ms(self, value: int) -> None:
        self.clock.stream_time_ms = value

    @property
    def digest(self) -> Digest:
        return digest_of_stores(self._digests())

    @property
    def store_digests(self) -> dict[str, Digest]:
        return recorded_digests(self._digests())

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self._parts.values())

    @property
    def sizes(self) -> tuple[StoreSize, ...]:
        parts = sorted(self._parts.items())
        return tuple(StoreSize(name, part.digest.count, part.size_bytes) for name, part in parts)

    @property
    def shard_count(self) -> int:
        return next(iter(self.maps.values())).shard_count

    @property
    def _parts(self) -> dict[str, Shards]:
        return {**{name: store.shards for name, store in self.maps.items()}, **self._others}

    def _digests(self) -> dict[str, Digest]:
        return {name: part.digest for name, part in self._parts.items()}

    # ------------------------------------------------------------------ the life of a batch

    def begin(self) -> None:
        for store in self.maps.values():
            store.begin()

    rollback = begin

    def staging(self) -> Steps[None]:
        touched = [store for store in self.maps.values() if store.live]
        encoded = yield from encoding([store.touched for store in touched])
        for store, found in zip(touched, encoded, strict=True):
            store.stage(found)

    def sealing(self) -> Steps[Sealed]:
        changes: dict[str, dict[bytes, bytes | None]] = {}
        for store in self.maps.values():
            changes |= (yield from store.sealing()).changes
        if self._retires:
            for name in self._others.keys() & self.retired:
                self._cleared[name] = self._others.pop(name)
        self.is_sealed = True
        digests = self._digests()
        return Sealed(changes, digest_of_stores(digests), recorded_digests(digests), sorted(self._cleared))

    def merge(self) -> None:
        for store in self.maps.values():
            store.merge()
        for shards in self._cleared.values():
            self.to_free += shards.take_all()
        self._cleared.clear()
        self.is_sealed = False
        del self.to_free[-_FREED_SHARDS:]

    def drop(self) -> None:
        for store in self.maps.values():
            store.drop()
        self._others |= self._cleared
        self._cleared.clear()
        self.is_sealed = False

    def checking(self, each_shard_max: int | None = None) -> Iterator[int]:
        self.refuse_unknown()
        for store in self.maps.values():
            yield from store.checking(each_shard_max)

    def refusing_pending(self) -> Steps[None]:
        if self.calls is not None:
            yield from self.calls.refusing()

    def refuse_unknown(self, known: Collection[str] = ()) -> None:
        """Raise UnknownStore: there are entries in a store that the app neither has nor retires, and that is not
        `known`."""
        for name, shards in self._others.items():
            if name not in self.retired and name not in known and shards.digest.count:
                count = shards.digest.count
                raise unknown_store(name, *self.maps, entry_count=count, declared=sorted(self.retired))

    # ------------------------------------------------------------------ snapshot and recovery

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        for name in cleared:
            self._others.pop(name, None)
            if name in self.maps:
                self.maps[name].apply_changes({}, cleared)
        for name, entries in changes.items():
            if name in self.maps:
                self.maps[name].apply_changes({name: entries})
            else:
                self._other(name).apply(entries)

    def retire(self) -> None:
        self._retires = True

    def mark(self) -> Cursor:
        if self.is_sealed:
            raise RuntimeError("a batch waits: a snapshot is of committed batches only")
        return CompositeCursor({name: part.mark() for name, part in sorted(self._parts.items())})

    def settle(self) -> bool:
        return all(part.settle() for part in self._parts.values())

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        for store in self.maps.values():
            store.clear(shard_count)
        self._others.clear()
        self._cleared.clear()
        self.to_free.clear()
        self.is_sealed = self._retires = False

    def freeing(self) -> Steps[None]:
        for store in self.maps.values():
            taken = store.shards.take_all()
            while taken:
                del taken[-_FREED_SHARDS:]
                yield
        self.clear()

    def load(self, slices: Iterable[ShardSlice], store: str = DEFAULT_STORE) -> None:
        if store in self.maps:
            self.maps[store].load(slices)
        else:
            self._other(store).load(slices)

    def indexing(self) -> Steps[None]:
        for store in self.maps.values():
            yield from store.indexing()

    def stored(self) -> Iterator[tuple[str, Mapping[bytes, bytes]]]:
        """Yield the entries of each store as they are stored, shard by shard. Not while a batch is in progress."""
        for name, part in self._parts.items():
            shards = part.shards if isinstance(part, MapStore) else part
            for entries in shards.by_shard():
                yield name, entries

    def committed_view(self) -> CommittedView[Any, Any] | CommittedStores:
        default = self.maps.get(DEFAULT_STORE)
        if default is not None and default.view is self.view:
            return default.committed_view()
        named = {n: store for n, store in self.maps.items() if n not in RESERVED}
        return CommittedStores({n: store.committed_view() for n, store in named.items()})

    def _other(self, name: str) -> Shards:
        return self._others.setdefault(name, Shards(self.shard_count))


class CompositeCursor:
    """A `Cursor` over several stores, one after the other."""

    def __init__(self, cursors: Mapping[str, Cursor]) -> None:
        self.digest = digest_of_stores({name: each.digest for name, each in cursors.items()})
        self.store = DEFAULT_STORE
        self._cursors = dict(cursors)
        self._left = list(cursors)

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        while self._left:
            self.store = self._left[0]
            slices = yield from self._cursors[self.store].slicing(raw_bytes_max)
            if slices:
                return slices
            self._left.pop(0)
        return []

    def release(self) -> None:
        for cursor in self._cursors.values():
            cursor.release()
        self._left.clear()

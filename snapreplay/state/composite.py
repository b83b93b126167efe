"""The engine's side of a state of one map or several: the maps, and stored entries that no map is for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from snapreplay.state.committed import CommittedStores, CommittedView
from snapreplay.state.contract import Cursor, Sealed, ShardSlice, StateChanges, StoreSize
from snapreplay.state.digest import DEFAULT_STORE, Digest, digest_of_stores, recorded_digests
from snapreplay.state.mapstore import MapClock, MapStore
from snapreplay.state.shards import SHARD_COUNT, Shards
from snapreplay.state.staging import encoding
from snapreplay.state.steps import Steps
from snapreplay.state.unknown_store import RESERVED, unknown_store

if TYPE_CHECKING:
    from snapreplay.state.timers import Scheduler
    from snapreplay.state.timetable import Timetable

_FREED_SHARDS = 8
"""Of a cleared store, given back with each batch: freeing a million entries at once takes a tenth of a second."""


class CompositeStore:
    """A `Store` of one map or several. Entries of a store that the app does not have are kept as they are, digest
    included: until a batch clears them, if the app has retired the store, and otherwise until `checking` refuses them.
    """

    keeps_changes = True
    can_roll_back = True
    can_drop = True
    scheduler: Scheduler | None = None
    timetable: Timetable | None = None

    def __init__(
        self, view: Any, maps: Mapping[str, MapStore[Any, Any]], retired: Collection[str] = ()
    ) -> None:
        """Take `view`: a `MapState` if that is the only map, else an object that has them."""
        self.view = view
        self._maps = {name: maps[name] for name in sorted(maps)}
        self.clock = MapClock()
        for store in maps.values():
            store.clock = self.clock
        self._retired = frozenset(retired)
        self._retires = False
        self._others: dict[str, Shards] = {}
        self._cleared: dict[str, Shards] = {}  # by the batch that is sealed
        self.to_free: list[dict[bytes, bytes]] = []
        self._sealed = False

    @property
    def maps(self) -> Mapping[str, MapStore[Any, Any]]:
        return self._maps

    @property
    def retired(self) -> Collection[str]:
        return self._retired

    @property
    def stream_time_ms(self) -> int:
        return self.clock.stream_time_ms

    @stream_time_ms.setter
    def stream_time_ms(self, value: int) -> None:
        self.clock.stream_time_ms = value

    @property
    def is_sealed(self) -> bool:
        return self._sealed

    @property
    def digest(self) -> Digest:
        return digest_of_stores(self._digests())

    @property
    def store_digests(self) -> dict[str, Digest]:
        return recorded_digests(self._digests())

    def digesting(self) -> Steps[Digest]:
        yield
        return self.digest

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self._parts.values())

    @property
    def sizes(self) -> tuple[StoreSize, ...]:
        """The sizes, also of stores that the app does not have."""
        parts = sorted(self._parts.items())
        return tuple(StoreSize(name, part.digest.count, part.size_bytes) for name, part in parts)

    @property
    def shard_count(self) -> int:
        """The shard count of each store."""
        return next(iter(self._maps.values())).shard_count

    @property
    def _parts(self) -> dict[str, MapStore[Any, Any] | Shards]:
        return {**self._maps, **self._others} if self._others else dict(self._maps)

    def _digests(self) -> dict[str, Digest]:
        return {name: part.digest for name, part in self._parts.items()}

    # ------------------------------------------------------------------ the life of a batch

    def begin(self) -> None:
        for store in self._maps.values():
            store.begin()

    rollback = begin

    def staging(self) -> Steps[None]:
        """Stage as `Store` says. After an error everything is as before, in all stores."""
        touched = [store for store in self._maps.values() if store.live]
        encoded = yield from encoding([store.touched for store in touched])
        for store, found in zip(touched, encoded, strict=True):
            store.stage(found)

    def sealing(self) -> Steps[Sealed]:
        """Seal the batch, or raise RuntimeError: a sealed batch is still waiting."""
        changes: dict[str, dict[bytes, bytes | None]] = {}
        for store in self._maps.values():
            changes |= (yield from store.sealing()).changes
        if self._retires:
            for name in self._others.keys() & self._retired:
                self._cleared[name] = self._others.pop(name)
        self._sealed = True
        digests = self._digests()
        return Sealed(
            changes, digest_of_stores(digests), recorded_digests(digests), sorted(self._cleared)
        )

    def merge(self) -> None:
        """Merge the sealed batch, or raise RuntimeError: nothing is sealed."""
        for store in self._maps.values():
            store.merge()
        for shards in self._cleared.values():
            self.to_free += shards.taken()
        self._cleared.clear()
        self._sealed = False
        del self.to_free[-_FREED_SHARDS:]

    def drop(self) -> None:
        for store in self._maps.values():
            store.drop()
        self._others |= self._cleared
        self._cleared.clear()
        self._sealed = False

    def checking(self, each_shard_max: int | None = None) -> Iterator[int]:
        for name, shards in self._others.items():
            if name not in self._retired and shards.digest.count:
                count = shards.digest.count
                raise unknown_store(
                    name, *self._maps, entry_count=count, declared=sorted(self._retired)
                )
        for store in self._maps.values():
            yield from store.checking(each_shard_max)

    # ------------------------------------------------------------------ snapshot and recovery

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        for name in cleared:
            self._others.pop(name, None)
            if name in self._maps:
                self._maps[name].apply_changes({}, cleared)
        for name, entries in changes.items():
            if name in self._maps:
                self._maps[name].apply_changes({name: entries})
            else:
                self._other(name).apply(entries)

    def retire(self) -> None:
        self._retires = True

    def mark(self) -> Cursor:
        if self._sealed:
            raise RuntimeError("a batch waits: a snapshot is of committed batches only")
        return CompositeCursor({name: part.mark() for name, part in sorted(self._parts.items())})

    def settle(self) -> bool:
        return all(part.settle() for part in self._parts.values())

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        for store in self._maps.values():
            store.clear(shard_count)
        self._others.clear()
        self._cleared.clear()
        self.to_free.clear()
        self._sealed = self._retires = False

    def load(self, slices: Iterable[ShardSlice], store: str = DEFAULT_STORE) -> None:
        if store in self._maps:
            self._maps[store].load(slices)
        else:
            self._other(store).load(slices)

    def loaded(self) -> None:
        """Do nothing: `load` took over every slice."""

    def indexing(self) -> Steps[None]:
        for store in self._maps.values():
            yield from store.indexing()

    def committed_view(self) -> CommittedView[Any, Any] | CommittedStores:
        default = self._maps.get(DEFAULT_STORE)
        if default is not None and default.view is self.view:
            return default.committed_view()
        named = {n: store for n, store in self._maps.items() if n not in RESERVED}
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

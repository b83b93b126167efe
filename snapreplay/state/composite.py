"""The engine's side of a state of one map or several: the maps, and stored entries that no map is for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from snapreplay.state.calls import CallStore
from snapreplay.state.committed import CommittedStores
from snapreplay.state.contract import RESERVED, Sealed, ShardSlice, StateChanges, StoreSize, unknown_store
from snapreplay.state.cursor import Shard, ShardCursor
from snapreplay.state.digest import DEFAULT_STORE, Digest, digest_of_stores, recorded_digests
from snapreplay.state.mapstore import MapClock, MapStore
from snapreplay.state.shards import SHARD_COUNT, Shards
from snapreplay.state.staging import encoding
from snapreplay.state.steps import Steps

if TYPE_CHECKING:
    from snapreplay.state.timers import Scheduler, Timetable

_FREED_SHARDS = 8
"""Of a cleared store, given back with each batch: freeing a million entries at once takes a tenth of a second."""


class Store:
    """A partition's state as the engine sees it: one map or several. Not thread-safe; one owner.

    Entries of a store that the app does not have are kept as they are, digest included: until a batch clears them, if
    the app has retired the store, and otherwise until `checking` refuses them.

    Life of a batch, and of two batches when the next one is applied while the last one commits:

        begin → (handlers change the view) → staging | rollback    once per batch, or once per record
        sealing → `Sealed`: what changed, digest after it           the batch goes into its transaction
        merge | drop                                                its commit was answered OK | anything else

    At most one sealed batch waits. Reads see live objects over staged over sealed over base. `mark()` is taken only
    while nothing is sealed. Staging and sealing are done in steps: in one piece they block the event loop for 4 to
    14 ms.

    Attributes:
        view: what handlers get as `state`.
        clock: has the same `stream_time_ms`; setting it there costs less.
        timetable: what is due, by stream time; None: nothing ever is.
        scheduler: sets timers for handlers; None: the app has none.
        calls: the store of pending calls to the outside; None: the app declares none.
        is_sealed: whether a sealed batch waits for `merge` or `drop`.
    """

    timetable: Timetable | None = None
    scheduler: Scheduler | None = None

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
        """The highest record timestamp so far, -1 before the first. Set before each record."""
        return self.clock.stream_time_ms

    @stream_time_ms.setter
    def stream_time_ms(self, value: int) -> None:
        self.clock.stream_time_ms = value

    @property
    def digest(self) -> Digest:
        """The digest of the base plus the sealed batch. Must not be read while a batch is being sealed."""
        return digest_of_stores(self._digests())

    @property
    def store_digests(self) -> dict[str, Digest]:
        """The digests by store, see `recorded_digests`; as `digest`."""
        return recorded_digests(self._digests())

    @property
    def size_bytes(self) -> int:
        """Key and value bytes in the base. Memory: about 1.6 times this plus 100 per entry."""
        return sum(part.size_bytes for part in self._parts.values())

    @property
    def sizes(self) -> tuple[StoreSize, ...]:
        """The size of each store, also of those that the app does not have."""
        parts = sorted(self._parts.items())
        return tuple(StoreSize(name, part.digest.count, part.size_bytes) for name, part in parts)

    @property
    def shard_count(self) -> int:
        """The shard count of a snapshot taken now; recorded in its manifest."""
        return next(iter(self.maps.values())).shard_count

    @property
    def _parts(self) -> dict[str, Shards]:
        return {**{name: store.shards for name, store in self.maps.items()}, **self._others}

    def _digests(self) -> dict[str, Digest]:
        return {name: part.digest for name, part in self._parts.items()}

    # ------------------------------------------------------------------ the life of a batch

    def begin(self) -> None:
        """Begin a batch."""
        for store in self.maps.values():
            store.begin()

    def rollback(self) -> None:
        """Drop what was touched since `begin`. Never raises."""
        self.begin()

    def staging(self) -> Steps[None]:
        """Encode what was touched since `begin`. After an error, and if it is abandoned half-way, nothing is staged.
        Raises RecordError: a value would not read back as it is, is too large, or is stored under two keys."""
        touched = [store for store in self.maps.values() if store.live]
        encoded = yield from encoding([store.touched for store in touched])
        for store, found in zip(touched, encoded, strict=True):
            store.stage(found)

    def sealing(self) -> Steps[Sealed]:
        """Seal what was staged. If it is abandoned half-way, only `drop` may follow. RuntimeError: a sealed batch
        waits."""
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
        """Make the sealed batch, which was committed, part of the base. RuntimeError: there is none."""
        for store in self.maps.values():
            store.merge()
        for shards in self._cleared.values():
            self.to_free += shards.take_all()
        self._cleared.clear()
        self.is_sealed = False
        del self.to_free[-_FREED_SHARDS:]

    def drop(self) -> None:
        """Forget the sealed batch and all that came after it."""
        for store in self.maps.values():
            store.drop()
        self._others |= self._cleared
        self._cleared.clear()
        self.is_sealed = False

    def checking(self, each_shard_max: int | None = None) -> Iterator[int]:
        """Read every entry of the base, or so many of each shard, as a handler would. Yields how many a step read.
        Batches may be merged between two steps. Raises UnknownStore, StoredValueUnreadable."""
        self.refuse_unknown()
        for store in self.maps.values():
            yield from store.checking(each_shard_max)

    def refusing_pending(self) -> Steps[None]:
        """Read the names of all pending timers and calls; nothing may be merged meanwhile. Raises UnknownTimer,
        UnknownCall: the app has no handler for one."""
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
        """Fold a batch's changes into the base in a recovery; first clear the stores named in `cleared`. Raises
        UnknownStore: the state cannot hold entries of another store."""
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
        """Let sealed batches clear the stores that the app has retired; a recovery follows what was recorded."""
        self._retires = True

    def mark(self) -> CompositeCursor:
        """Begin a cursor over the state as it is now. RuntimeError: a batch is sealed, or another cursor is open."""
        if self.is_sealed:
            raise RuntimeError("a batch waits: a snapshot is of committed batches only")
        return CompositeCursor({name: part.mark() for name, part in sorted(self._parts.items())})

    def settle(self) -> bool:
        """Do about a millisecond of the work that the last snapshot left. True if none is left."""
        return all(part.settle() for part in self._parts.values())

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        """Return to the state that the factory made. Raises DamagedError: no possible number of shards."""
        for store in self.maps.values():
            store.clear(shard_count)
        self._others.clear()
        self._cleared.clear()
        self.to_free.clear()
        self.is_sealed = self._retires = False

    def freeing(self) -> Steps[None]:
        """Become empty in steps: freeing a million entries at once takes a tenth of a second."""
        for store in self.maps.values():
            taken = store.shards.take_all()
            while taken:
                del taken[-_FREED_SHARDS:]
                yield
        self.clear()

    def load(self, slices: Iterable[ShardSlice], store: str = DEFAULT_STORE) -> None:
        """Take over entries of a snapshot in a recovery, dicts included; sums are added, not computed. Raises
        DamagedError: entries of another shard. UnknownStore: as `apply_changes`."""
        if store in self.maps:
            self.maps[store].load(slices)
        else:
            self._other(store).load(slices)

    def indexing(self) -> Steps[None]:
        """Sort the keys of ordered maps in a recovery. Nothing may be written meanwhile. Raises
        StoredValueUnreadable: a stored key has another type."""
        for store in self.maps.values():
            yield from store.indexing()

    def stored(self) -> Iterator[tuple[str, Mapping[bytes, bytes]]]:
        """Yield the entries of each store as they are stored, shard by shard. Not while a batch is in progress."""
        for name, part in self._parts.items():
            shards = part.shards if isinstance(part, MapStore) else part
            for entries in shards.by_shard():
                yield name, entries

    def committed_view(self) -> Any:
        """Read-only view of the last committed batch: a mapping, or an object with one for each store."""
        default = self.maps.get(DEFAULT_STORE)
        if default is not None and default.view is self.view:
            return default.committed_view()
        named = {n: store for n, store in self.maps.items() if n not in RESERVED}
        return CommittedStores({n: store.committed_view() for n, store in named.items()})

    def _other(self, name: str) -> Shards:
        if name not in self._others:  # to make the shards takes a millisecond, and a batch asks for a known store
            self._others[name] = Shards(self.shard_count)
        return self._others[name]


class CompositeCursor:
    """Reads a state as it was at `mark`, one store after the other.

    Attributes:
        digest: of the whole state.
        store: of the slices that were returned last.
    """

    def __init__(self, cursors: Mapping[str, ShardCursor]) -> None:
        self.digest = digest_of_stores({name: each.digest for name, each in cursors.items()})
        self.store = DEFAULT_STORE
        self._cursors = dict(cursors)
        self._left = list(cursors)

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        """Return the next slices, all of one store, as `ShardCursor.slicing`."""
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

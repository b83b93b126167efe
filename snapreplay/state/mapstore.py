"""The engine's side of a map: the batch in progress on top of the committed entries. Pure.

Layers, read from the top: live objects (touched since `begin`) → staged bytes (this batch) → shards
(the batch that is committing, if there is one, written over the committed entries; the old values are
kept to undo it). `staging` and `sealing` also give the changes, the digest and the rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from zlib import crc32

from msgspec import MsgspecError

from snapreplay import engine
from snapreplay.interrupts import of_a_signal
from snapreplay.state.committed import CommittedView
from snapreplay.state.contract import Sealed, ShardSlice, StateChanges
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.entry_index import EntryIndex, Present, StoredPart
from snapreplay.state.gate import OPEN
from snapreplay.state.keys import UNENCODABLE, K, KeyCodec
from snapreplay.state.shards import SHARD_COUNT, Shards, Slot, Slots
from snapreplay.state.sorted_entries import EVERYTHING, PART_ENTRIES_MAX, KeyBounds, SortedEntries, SortedPart
from snapreplay.state.staging import Encoded, Touched, encoding
from snapreplay.state.steps import Steps, all_of
from snapreplay.state.values import ABSENT, DELETED, Missing, ValueCodec, bare

if TYPE_CHECKING:
    from snapreplay.state.timers import Scheduler


V = TypeVar("V")


class MapClock:
    """Stream time of a state; its maps share one.

    Attributes:
        quiet_before_ms: before this stream time no timer and no entry that expires is due, and no record lies far
            ahead; -1: not known. What is set for an earlier time lowers it.
    """

    __slots__ = ("quiet_before_ms", "stream_time_ms")

    def __init__(self) -> None:
        self.stream_time_ms = self.quiet_before_ms = -1


class MapStore(Generic[K, V]):
    """One map of a `Store`.

    Attributes:
        name: of the store.
        live: touched keys → decoded value, or DELETED; in order of first touch. The view writes to
            keys that are in it.
        added: net number of keys that `live` adds to the layers below it; counted by the view and
            `touch`.
        decode_key: raises MsgspecError if the stored key is of another type.
        look_up: the engine's, if it looks keys up.
        scheduler: sets the timers of its keys; None: the app has none.
        version: changes with the layers below `live`.
    """

    scheduler: Scheduler | None = None
    gate = OPEN

    def __init__(
        self, view: Any, keys: KeyCodec[K], values: ValueCodec[V], entry_bytes_max: int, *, ordered: bool = False
    ) -> None:
        self.view = view
        self.name = DEFAULT_STORE
        self.clock = MapClock()
        self.version = 0
        self.live: dict[K, V | Literal[Missing.DELETED]] = {}
        self.added = 0
        self._keys, self._values = keys, values
        self.decode_key: Callable[[bytes], K] = keys.unpack
        self.entry_bytes_max = entry_bytes_max
        # One per key of `live`, in the same order, with the value below `live`.
        self._places: Slots = []
        # What the batch changed so far, and the places of these keys as they were before the batch.
        self._staged: dict[bytes, bytes | None] = {}
        self._staged_places: Slots = []
        self._staged_added = 0
        self.is_sealed = False
        self.shards = Shards(compact=not ordered)
        # None: the map is not ordered.
        self._index: EntryIndex[K] | None = EntryIndex(keys) if ordered else None
        # Every record passes here: each attribute lookup less saves 2 %.
        self._pack_key, self._unpack = keys.pack, values.unpack
        self._lookups, self._mask = self.shards.lookups, self.shards.mask
        self.look_up: Any = None
        if engine.compiled is not None and keys.type in (str, bytes):
            if not ordered:  # its index shares the keys
                self._places = engine.compiled.Places()
            layers = self.live, self._places, self.shards.targets, self._lookups
            look_up = engine.compiled.LookUp(*layers, keys.type is str, values.unpack, self.touch, MsgspecError)
            self.look_up = look_up
            self.touch = look_up.touch  # type: ignore[method-assign]  # it calls this one for anything unusual

    def give_name(self, name: str) -> None:
        """Be the store of this name in a state of several stores; messages say so."""
        self.name = name
        self._keys.place = self._values.place = f"state.{name}"

    @property
    def is_ordered(self) -> bool:
        return self._index is not None

    @property
    def shard_count(self) -> int:
        return self.shards.mask + 1

    def __len__(self) -> int:
        return self.shards.digest.count + self._staged_added + self.added

    # ------------------------------------------------------------------ for the view

    def touch(self, key: K, value: V | Literal[Missing.ABSENT] = ABSENT) -> V | Literal[Missing.ABSENT]:
        """Add a key that is not in `live` to it, with `value` or else the value of the layers below.

        Returns the value now in `live`; ABSENT, and nothing is added, if there is none.

        Raises:
            RecordError: msgpack cannot hold the key.
            StopError: the stored value does not have the declared type.
        """
        try:
            encoded = self._pack_key(key)
        except UNENCODABLE as error:
            raise self._keys.refusal(key, error) from error
        index = crc32(encoded) & self._mask
        # Saves every record a call: most batches are staged only once, at their end.
        below = self._below(encoded, index) if self._staged else self._lookups[index](encoded)
        if value is ABSENT:
            if below is None:
                return ABSENT
            try:
                value = self._unpack(below)
            except MsgspecError as error:
                value = self._values.unpack_past_stamp(key, below, error)
        elif below is None:
            self.key_added(key, encoded)
        self.live[key] = value
        self._places.append((encoded, below, index))
        return value

    def prefetch(self, records: Sequence[Any], kind: type) -> bool:
        """Prefetch the entries of the records' keys, if the map's keys are of this kind (`str`: UTF-8; `bytes`). Return
        whether more than half exist."""
        return self._keys.type is kind and 2 * self.shards.prefetch(records, are_texts=kind is str) > len(records)

    def look(self, key: K) -> V | None:
        """Return the value of a key that the view does not check; None: there is none."""
        value: Any = self.live.get(key, ABSENT)
        if value is ABSENT:
            value = self.touch(key)
        return None if value is ABSENT or value is DELETED else value

    def put(self, key: K, value: V) -> None:
        before = self.live.get(key, ABSENT)
        if before is ABSENT:
            self.touch(key, value)
            return
        self.live[key] = value
        if before is DELETED:
            self.key_added(key)

    def remove(self, key: K) -> None:
        """Remove a key that `look` has found."""
        self.live[key] = DELETED
        self.key_removed(key)

    def encoded_key(self, key: K) -> bytes:
        """Encode a key. Raises RecordError: it is none of this map."""
        return self._keys.encode(key)

    def has_below(self, key: K) -> bool:
        """Say whether the layers under `live` hold the key."""
        encoded = self._keys.encode(key)
        return self._below(encoded, crc32(encoded) & self._mask) is not None

    def key_added(self, key: K, encoded: bytes | None = None) -> None:
        self.added += 1
        if self._index is not None:
            encoded = self._pack_key(key) if encoded is None else encoded
            self._index.key_added(key, encoded, self._sealed_value(encoded))

    def key_removed(self, key: K) -> None:
        self.added -= 1
        if self._index is not None:
            self._index.key_removed(key, self._pack_key(key))

    def pairs(self, bounds: KeyBounds = EVERYTHING, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Return the view's entries at the time of the call, in the order of their keys; bounds need an ordered
        map. Values that can be changed in place are added to `live`. Raises as `touch`."""
        return self._pairs(self._parts(bounds, reverse=reverse), self.version)

    def _pairs(self, parts: Iterator[StoredPart], version: int) -> Iterator[tuple[K, V]]:
        live, places, unpack, mask = self.live, self._places, self._unpack, self._mask
        packed, keeps = self._keys.sorts_encoded, not self._values.shareable
        for items, column in parts:
            for key, item, below in zip(self._keys.of_items(items), items, column, strict=True):
                value: Any = live.get(key, ABSENT)
                if value is ABSENT and self.version != version:
                    value = self.touch(key)  # `below` is outdated
                elif value is ABSENT and below is not None:
                    try:
                        value = unpack(below)
                    except MsgspecError as error:
                        value = self._values.unpack_past_stamp(key, below, error)
                    if keeps:
                        encoded = item if packed else self._pack_key(key)
                        live[key] = value
                        places.append((encoded, below, crc32(encoded) & mask))
                if value is not ABSENT and value is not DELETED:
                    yield key, value

    def in_order(self) -> Iterator[K]:
        """Return the view's keys at the time of the call. Some may have been deleted since."""
        return (key for items in self._items(EVERYTHING) for key in self._keys.of_items(items))

    def _parts(self, bounds: KeyBounds, *, reverse: bool) -> Iterator[StoredPart]:
        """Return the items of the index, with their values below `live`."""
        if self._index is not None and not self._staged:
            return self.entries.within(bounds, reverse=reverse)
        found = self._items(bounds, reverse=reverse)
        return (SortedPart(items, self._values_below(items)) for items in found)

    def _items(self, bounds: KeyBounds, *, reverse: bool = False) -> Iterator[list[Any]]:
        """Return the view's keys as items of an `EntryIndex`, in lists. Sorts all of them, unless the map is
        ordered."""
        if self._index is not None:
            return (part.keys for part in self.entries.within(bounds, reverse=reverse))
        items = self._sorted_items()
        starts = range(0, len(items), PART_ENTRIES_MAX)
        return (items[start : start + PART_ENTRIES_MAX] for start in starts)

    def _sorted_items(self) -> list[Any]:
        present = {encoded: is_present for encoded, _, is_present in self._present()}
        encoded: list[Any] = [key for key in self.shards if key not in present]
        encoded += (key for key, is_present in present.items() if is_present)
        return sorted(encoded if self._keys.sorts_encoded else map(self._keys.decode, encoded))

    def _values_below(self, items: list[Any]) -> list[bytes | None]:
        encoded = items if self._keys.sorts_encoded else map(self._pack_key, items)
        return [self._below(key, crc32(key) & self._mask) for key in encoded]

    def _present(self) -> Iterator[Present]:
        """Return the keys that the batch touched. If a key comes twice, the later one counts."""
        for encoded, value in self._staged.items():
            yield encoded, self._sealed_value(encoded), value is not None
        for (encoded, _, index), live in zip(self._places, self.live.values(), strict=True):
            yield encoded, self._lookups[index](encoded), live is not DELETED

    @property
    def entries(self) -> SortedEntries[Any, bytes | None]:
        """The entries of the index of an ordered map. If they are not known yet, they are sorted now, in one go."""
        index = self._index
        if index is not None and index.entries is None:
            all_of(self.indexing())
        if index is None or index.entries is None:
            raise AssertionError("the map is not ordered")
        return index.entries

    def indexing(self) -> Steps[None]:
        if self._index is not None and self._index.entries is None:
            yield from self._index.sorting(self.shards.by_shard(), self._present())

    def _below(self, encoded: bytes, index: int) -> bytes | None:
        if encoded in self._staged:
            return self._staged[encoded]
        return self._lookups[index](encoded)

    def _sealed_value(self, encoded: bytes) -> bytes | None:
        return self._lookups[crc32(encoded) & self._mask](encoded)

    # ------------------------------------------------------------------ the life of a batch

    def begin(self) -> None:
        """Forget the objects touched since the last staging, and what happened to them."""
        if self._index is not None:
            self._index.restore(  # only the keys that came or went: all others have the value of the shards
                (key, self._lookups[index](key), below is not None)
                for (key, below, index), live in zip(self._places, self.live.values(), strict=True)
                if (below is None) != (live is DELETED)
            )
        self._forget_touched()

    def _forget_touched(self) -> None:
        self.live.clear()
        self._places.clear()
        self.added = 0

    rollback = begin

    def staging(self) -> Steps[None]:
        (encoded,) = yield from encoding([self.touched])
        self.stage(encoded)

    def encoding(self, entries: Mapping[K, V]) -> Steps[dict[bytes, bytes]]:
        """Encode entries that no handler made, in their order. Raises as `staging`, or as `touch`."""
        places: list[Slot] = [(key, None, 0) for key in map(self._keys.encode, entries)]
        found: list[Any] = yield from encoding([Touched(entries, places, self._values, self.entry_bytes_max)])
        encoded: dict[bytes, bytes] = found[0]
        return encoded

    @property
    def touched(self) -> Touched[K, V]:
        """The objects to encode for `stage`."""
        return Touched(self.live, self._places, self._values, self.entry_bytes_max)

    def stage(self, encoded: Encoded) -> None:
        """End `staging`: everything that was touched is encoded and can be written."""
        self.version += 1
        if self._staged:
            self._staged_places.extend(p for p in self._places if p[0] not in self._staged)
            self._staged.update(encoded)
        else:
            self._staged = encoded
            places = self._places
            self._staged_places = places.copy() if isinstance(places, list) else places.take()
        self._staged_added += self.added
        if self.look_up is not None:
            self.look_up.staged(self._staged or None)
        self._forget_touched()

    def sealing(self) -> Steps[Sealed]:
        if self.is_sealed:
            raise RuntimeError("a sealed batch waits: merge or drop it before the next seal")
        changes = self._staged
        self.version += 1
        yield from self.shards.writing(self._staged_places, changes)
        if self._index is not None:
            self._index.seal()
            yield from self._index.writing(changes)
        self.is_sealed = True
        self._forget_staged()
        return Sealed({self.name: changes} if changes else {}, self.shards.digest)

    def merge(self) -> None:
        if not self.is_sealed:
            raise RuntimeError("no sealed batch to merge")
        self.shards.keep()
        self.is_sealed = False
        if self._index is not None:
            self._index.merge()

    def drop(self) -> None:
        touched = () if self._index is None else (*self.shards.waiting, *self._staged_places, *self._places)
        self.shards.undo()
        self.version += 1
        self.is_sealed = False
        self._forget_staged()
        self._forget_touched()
        if self._index is not None:
            values = ((key, self._lookups[index](key)) for key, _, index in touched)
            self._index.drop((key, value, value is not None) for key, value in values)

    def _forget_staged(self) -> None:
        self._staged, self._staged_places, self._staged_added = {}, [], 0
        if self.look_up is not None:
            self.look_up.staged(None)

    def checking(self, each_shard_max: int | None = None) -> Iterator[int]:
        return reading_all(self.shards, self._keys, self._values, each_shard_max)

    # ------------------------------------------------------------------ snapshot and recovery

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        self.version += 1
        if self.name in cleared:
            self.shards.reset(self.shard_count)
            if self._index is not None:
                self._index.clear()
        entries = changes.get(self.name, {})
        self.shards.apply(entries)
        if self._index is not None:
            self._index.apply(entries)

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        self.drop()
        self.clock.stream_time_ms = -1
        self.shards.reset(shard_count)
        if self._index is not None:
            self._index.clear()
        self._mask = self.shards.mask

    def load(self, slices: Iterable[ShardSlice]) -> None:
        self.version += 1
        if self._index is not None:
            self._index.entries = None
        self.shards.load(slices)

    def committed_view(self) -> CommittedView[K, V]:
        index = self._index
        if index is None:
            return CommittedView(self._keys, self._values, self.shards)

        def parts(bounds: KeyBounds, *, reverse: bool = False) -> Iterator[StoredPart]:
            return index.with_gone(self.entries, self._sealed_value, bounds, reverse=reverse)

        return CommittedView(self._keys, self._values, self.shards, parts)


CHECK_ENTRIES, CHECK_BYTES = 128, 64 * 1024
"""Read in one step, which takes well below a millisecond."""


def reading_all(
    shards: Shards, keys: KeyCodec[Any], values: ValueCodec[Any], each_shard_max: int | None
) -> Iterator[int]:
    """Read as `Store.checking` says. An entry that is overwritten or deleted meanwhile does no harm."""
    for index in range(shards.mask + 1 if shards.digest.count else 0):
        entries = shards.entries(index, each_shard_max)
        start = 0
        while start < len(entries):
            end, size_bytes = start, 0
            while end < min(start + CHECK_ENTRIES, len(entries)) and size_bytes < CHECK_BYTES:
                size_bytes += len(entries[end][1])
                end += 1
            _read(shards, keys, values, index, entries[start:end])
            yield end - start
            start = end


def _read(
    shards: Shards, keys: KeyCodec[Any], values: ValueCodec[Any], index: int, entries: Iterable[tuple[bytes, bytes]]
) -> None:
    lookup, read_key, read = shards.lookups[index], keys.unpack, values.unpack
    for encoded, value in entries:
        try:
            key = read_key(encoded)
        except MsgspecError as error:
            if lookup(encoded) is not None:
                raise keys.misfit(encoded, error) from error
            continue
        try:
            read(bare(value))
        except BaseException as error:
            if of_a_signal(error):
                raise
            if lookup(encoded) == value:
                raise values.misfit(key, error) from error

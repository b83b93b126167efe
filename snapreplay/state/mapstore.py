"""The engine's side of a map: the batch in progress on top of the committed entries. Pure.

Layers, read from the top: live objects (touched since `begin`) → staged bytes (this batch) → shards
(the batch that is committing, if there is one, written over the committed entries; the old values are
kept to undo it). `staging` and `sealing` also give the changes, the digest and the rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from zlib import crc32

from msgspec import MsgspecError

from snapreplay.state.committed import CommittedView
from snapreplay.state.contract import Cursor, Sealed, ShardSlice, StateChanges, StoreSize
from snapreplay.state.digest import DEFAULT_STORE, Digest
from snapreplay.state.key_index import KeyIndex
from snapreplay.state.keys import UNENCODABLE, K, KeyCodec
from snapreplay.state.shards import SHARD_COUNT, Shards, Slot
from snapreplay.state.sorted_keys import Bounds, SortedKeys, with_keys
from snapreplay.state.staging import Encoded, Touched, encoding
from snapreplay.state.stamp import bare
from snapreplay.state.steps import Steps, all_of
from snapreplay.state.unknown_store import unknown_store
from snapreplay.state.values import ABSENT, DELETED, Missing, ValueCodec

if TYPE_CHECKING:
    from snapreplay.state.timers import Scheduler
    from snapreplay.state.timetable import Timetable

CHECK_ENTRIES, CHECK_BYTES = 128, 64 * 1024
"""Read in one step, which takes well below a millisecond."""

V = TypeVar("V")


class MapStore(Generic[K, V]):
    """A `Store`; in a state of several stores, one of them.

    Attributes:
        name: of the store.
        live: touched keys → decoded value, or DELETED; in order of first touch. The view writes to
            keys that are in it.
        added: net number of keys that `live` adds to the layers below it; counted by the view and
            `touch`.
        scheduler: sets the timers of its keys; None: the app has none.
        timetable: what is due in the whole state; None: nothing ever is.
    """

    keeps_changes = True
    can_roll_back = True
    can_drop = True
    scheduler: Scheduler | None = None
    timetable: Timetable | None = None

    def __init__(
        self,
        view: Any,
        keys: KeyCodec[K],
        values: ValueCodec[V],
        entry_bytes_max: int,
        *,
        ordered: bool = False,
    ) -> None:
        self.view = view
        self.name = DEFAULT_STORE
        self.stream_time_ms = -1
        self.live: dict[K, V | Literal[Missing.DELETED]] = {}
        self.added = 0
        self._keys, self._values = keys, values
        self._entry_bytes_max = entry_bytes_max
        # One per key of `live`, in the same order, with the value below `live`.
        self._places: list[Slot] = []
        # What the batch changed so far, and the places of these keys as they were before the batch.
        self._staged: dict[bytes, bytes | None] = {}
        self._staged_places: list[Slot] = []
        self._staged_added = 0
        self._sealed = False
        self._shards = Shards()
        # None: the map is not ordered.
        self._index: KeyIndex[K] | None = KeyIndex(keys) if ordered else None
        # Every record passes here: each attribute lookup less saves 2 %.
        self._pack_key, self._unpack = keys.pack, values.unpack
        self._lookups, self._mask = self._shards.lookups, self._shards.mask

    def give_name(self, name: str) -> None:
        """It is the store of this name in a state of several stores; messages say so."""
        self.name = name
        self._keys.place = self._values.place = f"state.{name}"

    @property
    def decode_key(self) -> Callable[[bytes], K]:
        """Raises MsgspecError: the stored key is of another type."""
        return self._keys.unpack

    @property
    def is_sealed(self) -> bool:
        return self._sealed

    @property
    def digest(self) -> Digest:
        return self._shards.digest

    @property
    def store_digests(self) -> dict[str, Digest]:
        return {}

    def digesting(self) -> Steps[Digest]:
        yield
        return self.digest

    @property
    def size_bytes(self) -> int:
        return self._shards.size_bytes

    @property
    def sizes(self) -> tuple[StoreSize, ...]:
        return (StoreSize(self.name, self.digest.count, self.size_bytes),)

    @property
    def shard_count(self) -> int:
        return self._shards.mask + 1

    def __len__(self) -> int:
        return self.digest.count + self._staged_added + self.added

    # ------------------------------------------------------------------ for the view

    def touch(
        self,
        key: K,
        value: V | Literal[Missing.ABSENT] = ABSENT,
        encoded: bytes | None = None,
    ) -> V | Literal[Missing.ABSENT]:
        """Add a key that is not in `live` to it, with `value` or else the value of the layers below.

        Args:
            encoded: the key, if the caller has it in this form as well.

        Returns:
            The value now in `live`; ABSENT, and nothing is added, if there is none.

        Raises:
            RecordError: msgpack cannot hold the key.
            StopError: the stored value does not have the declared type.
        """
        if encoded is None:
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
            self.came(key, encoded)
        self.live[key] = value
        self._places.append((encoded, below, index))
        return value

    def has_below(self, key: K) -> bool:
        """Whether the layers under `live` hold the key."""
        encoded = self._keys.encode(key)
        return self._below(encoded, crc32(encoded) & self._mask) is not None

    def came(self, key: K, encoded: bytes | None = None) -> None:
        """The view has a key that it did not have."""
        self.added += 1
        if self._index is not None:
            self._index.put(key, present=True, encoded=encoded)

    def went(self, key: K) -> None:
        """The view does not have a key any more."""
        self.added -= 1
        if self._index is not None:
            self._index.put(key, present=False)

    def in_order(self) -> Iterator[Any]:
        """Return every key at the time of the call as an item of a `KeyIndex`, in order: O(n log n), unless the map is
        ordered.
        """
        if self._index is not None:
            return self.items.within(Bounds())
        present = self._present()
        encoded: list[Any] = [key for key in self._shards if key not in present]
        encoded.extend(key for key, is_present in present.items() if is_present)
        if not self._keys.sorts_encoded:
            encoded = list(map(self._keys.unpack, encoded))
        encoded.sort()
        return iter(encoded)

    def _present(self) -> dict[bytes, bool]:
        """Whether the view has each key that the batch touched."""
        present = {key: value is not None for key, value in self._staged.items()}
        present.update(
            (place[0], value is not DELETED)
            for place, value in zip(self._places, self.live.values(), strict=True)
        )
        return present

    @property
    def items(self) -> SortedKeys[Any]:
        """Of the index of an ordered map. If they are not known yet, they are sorted now, in one go."""
        index = self._index
        if index is not None and index.items is None:
            all_of(self.indexing())
        if index is None or index.items is None:
            raise AssertionError("the map is not ordered")
        return index.items

    def indexing(self) -> Steps[None]:
        """See `Store`."""
        if self._index is not None and self._index.items is None:
            yield from self._index.sorting(self._shards.by_shard(), self._present())

    def _below(self, encoded: bytes, index: int) -> bytes | None:
        if encoded in self._staged:
            return self._staged[encoded]
        return self._lookups[index](encoded)

    # ------------------------------------------------------------------ the life of a batch

    def begin(self) -> None:
        """Forget the objects touched since the last staging, and what happened to them."""
        if self._index is not None:
            self._index.rollback(zip(self.live, self._places, strict=True))
        self._forget_touched()

    def _forget_touched(self) -> None:
        self.live.clear()
        self._places.clear()
        self.added = 0

    rollback = begin

    def staging(self) -> Steps[None]:
        """See `Store`. After an error everything is as before."""
        (encoded,) = yield from encoding([self.touched])
        self.stage(encoded)

    @property
    def touched(self) -> Touched[K, V]:
        """What to encode for `stage`."""
        return Touched(self.live, self._places, self._values, self._entry_bytes_max)

    def stage(self, encoded: Encoded) -> None:
        """The end of `staging`: everything that was touched is encoded and can be written."""
        if self._staged:
            self._staged_places += [p for p in self._places if p[0] not in self._staged]
            self._staged.update(encoded)
        else:
            self._staged = encoded
            self._staged_places = self._places.copy()
        self._staged_added += self.added
        self._forget_touched()

    def sealing(self) -> Steps[Sealed]:
        """
        Raises:
            RuntimeError: a sealed batch is still waiting.
        """
        if self._sealed:
            raise RuntimeError("a sealed batch waits: merge or drop it before the next seal")
        changes = self._staged
        if self._index is not None:
            self._index.seal()
        yield from self._shards.writing(self._staged_places, changes)
        self._sealed = True
        self._forget_staged()
        return Sealed({self.name: changes} if changes else {}, self._shards.digest)

    def merge(self) -> None:
        """
        Raises:
            RuntimeError: nothing is sealed.
        """
        if not self._sealed:
            raise RuntimeError("no sealed batch to merge")
        self._shards.keep()
        self._sealed = False
        if self._index is not None:
            self._index.merge()

    def drop(self) -> None:
        touched = (*self._shards.waiting, *self._staged_places, *self._places)
        self._shards.undo()
        self._sealed = False
        self._forget_staged()
        self._forget_touched()
        if self._index is not None:
            self._index.drop({e: self._lookups[n](e) is not None for e, _, n in touched})

    def _forget_staged(self) -> None:
        self._staged, self._staged_places, self._staged_added = {}, [], 0

    def checking(self, each_shard_max: int | None = None) -> Iterator[int]:
        for index in range(self.shard_count):
            entries = self._shards.entries(index, each_shard_max)
            start = 0
            while start < len(entries):
                end, size_bytes = start, 0
                while end < min(start + CHECK_ENTRIES, len(entries)) and size_bytes < CHECK_BYTES:
                    size_bytes += len(entries[end][1])
                    end += 1
                self._check(index, entries[start:end])
                yield end - start
                start = end

    def _check(self, index: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """An entry that was overwritten or deleted meanwhile does no harm."""
        read_key, read = self._keys.unpack, self._unpack
        for encoded, value in entries:
            try:
                key = read_key(encoded)
            except MsgspecError as error:
                if self._lookups[index](encoded) is not None:
                    raise self._keys.misfit(encoded, error) from error
                continue
            try:
                read(bare(value))
            except Exception as error:  # whatever the user's type raises, a handler would meet it
                if self._lookups[index](encoded) == value:
                    raise self._values.misfit(key, error) from error

    # ------------------------------------------------------------------ snapshot and recovery

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        if self.name in cleared:
            self._shards.reset(self.shard_count)
            if self._index is not None:
                self._index.clear()
        for store, entries in changes.items():
            if store == self.name:
                self._shards.apply(entries)
                if self._index is not None:
                    self._index.apply(entries)
            elif entries:
                raise unknown_store(store, self.name)

    def retire(self) -> None:
        """There is no other store."""

    def mark(self) -> Cursor:
        return self._shards.mark()

    def settle(self) -> bool:
        return self._shards.settle()

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        self.drop()
        self.stream_time_ms = -1
        self._shards.reset(shard_count)
        if self._index is not None:
            self._index.clear()
        self._mask = self._shards.mask

    def load(self, slices: Iterable[ShardSlice], store: str = DEFAULT_STORE) -> None:
        if store != self.name:
            raise unknown_store(store, self.name)
        if self._index is not None:
            self._index.items = None
        self._shards.load(slices)

    def loaded(self) -> None:
        """Nothing to do: `load` took over every slice."""

    def committed_view(self) -> CommittedView[K, V]:
        index = self._index
        if index is None:
            return CommittedView(self._keys, self._values, self._shards)

        def items(bounds: Bounds, *, reverse: bool = False) -> Iterator[Any]:
            return with_keys(self.items, index.gone, bounds, reverse=reverse)

        return CommittedView(self._keys, self._values, self._shards, items)

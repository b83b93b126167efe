"""The entries of an ordered map in the order of their keys. Pure.

The keys are those of the newest layer, the batch in progress included. The values are those of the shards, up to the
sealed batch. A key that is new in the batch in progress has no value here.

The items of the index are the keys. If these are tuples, the items are the encoded keys, which have the same order.
They are the same bytes objects that the shards hold, so they take no memory of their own, and sorting them takes a
third of the time (measured).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic

from msgspec import MsgspecError

from snapreplay.state.keys import K, KeyCodec
from snapreplay.state.sorted_entries import KeyBounds, SortedEntries, SortedPart, sorting, with_others
from snapreplay.state.steps import Steps

BLOCK = 512
"""Values written in one step."""

StoredPart = SortedPart[Any, bytes | None]
"""Items of an index, and their stored values."""

Present = tuple[bytes, bytes | None, bool]
"""An encoded key, its value in the shards, and whether the view has it."""


class EntryIndex(Generic[K]):
    """Follows a map through the life of its batches, see `Store`. `entries`: all entries, sorted; None: not sorted yet,
    as after a restore."""

    def __init__(self, keys: KeyCodec[K]) -> None:
        self.entries: SortedEntries[Any, bytes | None] | None = SortedEntries()
        self._keys = keys
        # Items of removed keys, most of them still committed: those removed since the last seal; in the sealed batch.
        self._removed, self._sealed_removed = set[Any](), set[Any]()

    def with_gone(
        self,
        entries: SortedEntries[Any, bytes | None],
        value_of: Callable[[bytes], bytes | None],
        bounds: KeyBounds,
        *,
        reverse: bool,
    ) -> Iterator[StoredPart]:
        """Yield a range of these entries and of the removed keys. `value_of`: encoded key → its value in the shards."""
        keys = self._keys

        def stored(item: Any) -> bytes | None:
            return value_of(item if keys.sorts_encoded else keys.pack(item))

        removed = self._removed | self._sealed_removed
        return with_others(entries, removed, stored, bounds, reverse=reverse)

    def clear(self) -> None:
        self.entries = SortedEntries()
        self._removed, self._sealed_removed = set(), set()

    def key_added(self, key: K, encoded: bytes, value: bytes | None) -> None:
        """Note that the view has a new key. `value`: its value in the shards."""
        if self.entries is not None:
            self.entries.put(encoded if self._keys.sorts_encoded else key, value)

    def key_removed(self, key: K, encoded: bytes) -> None:
        item: Any = encoded if self._keys.sorts_encoded else key
        self._removed.add(item)
        if self.entries is not None:
            self.entries.remove(item)

    def restore(self, touched: Iterable[Present]) -> None:
        """Put these keys and their values back as they were."""
        if self.entries is not None:
            self._restore(self.entries, touched)

    def seal(self) -> None:
        self._removed, self._sealed_removed = set(), self._removed

    def writing(self, changes: Mapping[bytes, bytes | None]) -> Steps[None]:
        """Note that the shards have got these values; None: the key was deleted."""
        entries, writes = self.entries, iter(changes.items())
        while entries is not None and (block := list(islice(writes, BLOCK))):
            self._write(entries, block)
            yield

    def merge(self) -> None:
        self._sealed_removed = set()

    def drop(self, touched: Iterable[Present]) -> None:
        self._removed, self._sealed_removed = set(), set()
        self.restore(touched)

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        if self.entries is not None:
            try:
                self._write(self.entries, changes.items())
            except MsgspecError:
                self.entries = None  # the keys have another type now: `checking` names one

    def sorting(self, shards: Iterable[Mapping[bytes, bytes]], present: Iterable[Present]) -> Steps[None]:
        """Sort all entries.

        Args:
            shards: the encoded entries below the batch in progress.
            present: the keys that the batch in progress touched.

        Raises:
            StoredValueUnreadable: a key is of another type.
        """
        entries = yield from sorting(map(self._items_of, shards))
        self._restore(entries, present)
        self.entries = entries

    def _restore(self, entries: SortedEntries[Any, bytes | None], touched: Iterable[Present]) -> None:
        for encoded, value, is_present in touched:
            item = encoded if self._keys.sorts_encoded else self._keys.unpack(encoded)
            if is_present:
                entries.put(item, value)
            else:
                entries.remove(item)

    def _write(self, entries: SortedEntries[Any, bytes | None], changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        for encoded, value in changes:
            item = encoded if self._keys.sorts_encoded else self._keys.unpack(encoded)
            if value is None:
                entries.remove(item)
            else:
                entries.put(item, value)

    def _items_of(self, shard: Mapping[bytes, bytes]) -> Mapping[Any, bytes | None]:
        if self._keys.sorts_encoded:
            return shard
        unpack, entries = self._keys.unpack, dict[K, bytes | None]()
        for encoded, value in shard.items():
            try:
                entries[unpack(encoded)] = value
            except MsgspecError as error:
                raise self._keys.misfit(encoded, error) from error
        return entries

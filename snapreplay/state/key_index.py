"""Which keys an ordered map has, in their order: those of the newest layer, the batch in progress included. Pure.

The items of the index are the keys; of a map with tuples as keys they are the encoded keys, because these have the
same order. They are the very bytes that the shards hold, so they take no memory of their own, and they are sorted in a
third of the time (measured).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic

from msgspec import MsgspecError

from snapreplay.state.keys import K, KeyCodec
from snapreplay.state.shards import Slot
from snapreplay.state.sorted_keys import SortedKeys, sorting
from snapreplay.state.steps import Steps


class KeyIndex(Generic[K]):
    """Follows a map through the life of its batches, see `Store`.

    Attributes:
        items: all of them; None: not known yet, as after a restore.
    """

    def __init__(self, keys: KeyCodec[K]) -> None:
        self.items: SortedKeys[Any] | None = SortedKeys()
        self._keys = keys
        # Since the last seal; in the sealed batch.
        self._gone, self._sealed_gone = set[Any](), set[Any]()

    @property
    def gone(self) -> set[Any]:
        """Items of keys that are committed still, and of some that are not."""
        return self._gone | self._sealed_gone

    def clear(self) -> None:
        self.items = SortedKeys()
        self._gone, self._sealed_gone = set(), set()

    def put(self, key: K, *, present: bool, encoded: bytes | None = None) -> None:
        """The view has a key that it did not have, or has it no more."""
        item: Any = key
        if self._keys.sorts_encoded:
            item = self._keys.pack(key) if encoded is None else encoded
        if not present:
            self._gone.add(item)
        if self.items is not None:
            self.items.put(item, present=present)

    def rollback(self, touched: Iterable[tuple[K, Slot]]) -> None:
        """What was touched since the last staging is again as it was below."""
        if self.items is not None:
            for key, (encoded, below, _) in touched:
                item = encoded if self._keys.sorts_encoded else key
                self.items.put(item, present=below is not None)

    def seal(self) -> None:
        self._gone, self._sealed_gone = set(), self._gone

    def merge(self) -> None:
        self._sealed_gone = set()

    def drop(self, committed: Mapping[bytes, bool]) -> None:
        """Whether the committed state has each key that was touched since the last merge."""
        self._gone, self._sealed_gone = set(), set()
        self._put_encoded(self.items, committed)

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        try:
            self._put_encoded(self.items, {key: new is not None for key, new in changes.items()})
        except MsgspecError:
            self.items = None  # the keys have another type now: `checking` names one

    def sorting(
        self, shards: Iterable[Iterable[bytes]], present: Mapping[bytes, bool]
    ) -> Steps[None]:
        """Make them known.

        Args:
            shards: the encoded keys below the batch in progress.
            present: what the batch in progress makes of them.

        Raises:
            StoredValueUnreadable: a key is of another type.
        """
        items = yield from sorting(map(self._items_of, shards))
        self._put_encoded(items, present)
        self.items = items

    def _put_encoded(self, items: SortedKeys[Any] | None, present: Mapping[bytes, bool]) -> None:
        if items is not None:
            for encoded, is_present in present.items():
                item = encoded if self._keys.sorts_encoded else self._keys.unpack(encoded)
                items.put(item, present=is_present)

    def _items_of(self, shard: Iterable[bytes]) -> list[Any]:
        if self._keys.sorts_encoded:
            return list(shard)
        unpack, keys = self._keys.unpack, list[K]()
        for encoded in shard:
            try:
                keys.append(unpack(encoded))
            except MsgspecError as error:
                raise self._keys.misfit(encoded, error) from error
        return keys

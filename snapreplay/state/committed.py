"""A map as of the last committed batch, for tasks other than the handlers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec import MsgspecError

from snapreplay.state.entry_index import StoredPart
from snapreplay.state.keys import K, KeyCodec
from snapreplay.state.shards import Shards
from snapreplay.state.sorted_entries import EVERYTHING, KeyBounds
from snapreplay.state.values import ValueCodec

V = TypeVar("V")


class CommittedView(Mapping[K, V], Generic[K, V]):
    """A read-only view that follows the state: always the last committed batch, even while the next one is applied.

    Each access decodes again, so changes to a returned value have no effect. Iteration covers the keys present when it
    began. Over a map that is not ordered it is in no order, and copies all encoded keys at its beginning; looking up a
    key that was deleted since raises KeyError.
    """

    def __init__(
        self,
        keys: KeyCodec[K],
        values: ValueCodec[V],
        shards: Shards,
        parts: Callable[..., Iterator[StoredPart]] | None = None,
    ) -> None:
        """Take `parts(bounds, reverse=…)`: of an ordered map, with the values of the shards, some not committed yet."""
        self._parts = parts
        self._keys = keys
        self._values = values
        self._shards = shards

    def __getitem__(self, key: K) -> V:
        stored = self.stored(key)
        if stored is None:
            raise KeyError(key)
        return self._value(key, stored)

    def range(
        self, *, prefix: Any = None, start: Any = None, end: Any = None, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        """Read as `MapState.range` does. It covers the keys that are committed at the call; values are read on the way.

        Raises:
            RecordError: a bound of another type than the keys, or that cannot be encoded.
            UsageError: the map is not ordered.
        """
        bounds = self._keys.bounds(KeyBounds(prefix, start, end), is_ordered=self._parts is not None)
        return ((key, self._value(key, stored)) for key, stored in self._stored_between(bounds, reverse=reverse))

    def _stored_between(self, bounds: KeyBounds, *, reverse: bool = False) -> Iterator[tuple[K, bytes]]:
        parts = iter(()) if self._parts is None else self._parts(bounds, reverse=reverse)
        return self._committed(parts, self._shards.version)

    def _committed(self, parts: Iterator[StoredPart], version: int) -> Iterator[tuple[K, bytes]]:
        """Read committed entries; `version`: that of the shards at the call. Once it has changed, a part may have
        undone or outdated values, so each key is looked up."""
        keys, shards = self._keys, self._shards
        for items, column in parts:
            encoded = items if keys.sorts_encoded else list(map(keys.pack, items))
            values = shards.committed_values(encoded, column)
            for key, known, value in zip(keys.of_items(items), encoded, values, strict=True):
                now = value if shards.version == version else shards.committed_value(known)
                if now is not None:
                    yield key, now

    def _value(self, key: K, stored: bytes) -> V:
        try:
            return self._values.unpack(stored)
        except MsgspecError as error:
            return self._values.unpack_past_stamp(key, stored, error)

    def __contains__(self, key: object) -> bool:
        return self.stored(key) is not None

    def __len__(self) -> int:
        return self._shards.committed_digest.count

    def __iter__(self) -> Iterator[K]:
        if self._parts is not None:
            return (key for key, _ in self._stored_between(EVERYTHING))
        return map(self._keys.decode, self._shards.committed_keys())

    def stored(self, key: object) -> bytes | None:
        """Return the encoded value; None: there is none. Raises RecordError: a key of another type."""
        return self._shards.committed_value(self._keys.encode(key))

    def stored_entries(self, bounds: KeyBounds = EVERYTHING, after: Any = None) -> Iterator[tuple[K, bytes]]:
        """Yield keys with their encoded values, those behind the key `after`: of an ordered map in the order of the
        keys, otherwise in one that additions and removals do not change. Not to be continued after a batch.

        Raises:
            RecordError, UsageError: as `range`.
        """
        if self._parts is not None or bounds != EVERYTHING:
            start = after if bounds.start is None or (after is not None and after > bounds.start) else bounds.start
            checked = self._keys.bounds(bounds._replace(start=start), is_ordered=self._parts is not None)
            return ((key, stored) for key, stored in self._stored_between(checked) if key != after)
        behind = None if after is None else self._keys.encode(after)
        return ((self._keys.decode(key), stored) for key, stored in self._shards.committed_behind(behind))


class CommittedStores:
    """The same of several stores: each is an attribute with a `CommittedView`, by the names that the state has."""

    def __init__(self, stores: Mapping[str, CommittedView[Any, Any]]) -> None:
        self.__dict__.update(stores)

    def __getattr__(self, name: str) -> CommittedView[Any, Any]:
        raise AttributeError(f"the state has no store {name!r}; it has {', '.join(vars(self))}")

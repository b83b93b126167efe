"""A map as of the last committed batch, for tasks other than the handlers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec import MsgspecError

from snapreplay.state.keys import K, KeyCodec
from snapreplay.state.shards import Shards
from snapreplay.state.values import ValueCodec

V = TypeVar("V")


class CommittedView(Mapping[K, V], Generic[K, V]):
    """A read-only view that follows the state: always the last committed batch, even while the next one is applied.

    Each access decodes anew, so changes to a returned value have no effect. Iteration covers the keys
    present when it began, in order, and costs O(n log n); looking up a key that was deleted since
    raises KeyError.
    """

    def __init__(self, keys: KeyCodec[K], values: ValueCodec[V], shards: Shards) -> None:
        self._keys = keys
        self._values = values
        self._shards = shards

    def __getitem__(self, key: K) -> V:
        stored = self._stored(key)
        if stored is None:
            raise KeyError(key)
        try:
            return self._values.unpack(stored)
        except MsgspecError as error:
            return self._values.unpack_past_stamp(key, stored, error)

    def __contains__(self, key: object) -> bool:
        return self._stored(key) is not None

    def __len__(self) -> int:
        return self._shards.committed_digest.count

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(map(self._keys.unpack, self._shards.committed_keys())))

    def _stored(self, key: object) -> bytes | None:
        return self._shards.committed_value(self._keys.encode(key))


class CommittedStores:
    """The same of several stores: each is an attribute with a `CommittedView`, by the names that the state has."""

    def __init__(self, stores: Mapping[str, CommittedView[Any, Any]]) -> None:
        self.__dict__.update(stores)

    def __getattr__(self, name: str) -> CommittedView[Any, Any]:
        raise AttributeError(f"the state has no store {name!r}; it has {', '.join(vars(self))}")

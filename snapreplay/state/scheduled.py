"""Maps whose entries have a time: when they expire, or when they fire. Pure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar
from zlib import crc32

from snapreplay.errors import UsageError
from snapreplay.state.agenda import Agenda
from snapreplay.state.contract import Sealed, ShardSlice, StateChanges
from snapreplay.state.keys import KeyCodec
from snapreplay.state.mapstore import MapStore
from snapreplay.state.shards import SHARD_COUNT
from snapreplay.state.staging import Encoded
from snapreplay.state.steps import Steps
from snapreplay.state.values import ValueCodec, stamped, touched_at

K = TypeVar("K", bound=Any)
V = TypeVar("V")

TTL_MS_MAX = 100 * 366 * 86_400_000
"""A hundred years: time and ttl together stay far below 64 bits."""


class ScheduledStore(MapStore[K, V], Generic[K, V]):
    """A `MapStore` with an agenda of its entries, batches in progress included."""

    @cached_property
    def agenda(self) -> Agenda:
        """The times at which its entries are due."""
        return Agenda()

    @abstractmethod
    def due_ms(self, stored: bytes | None) -> int | None:
        """Say when an entry with this value is due; None: never."""

    def move(self, key: bytes, old_ms: int | None, new_ms: int | None) -> None:
        """Move an encoded key in the agenda, see `Agenda.set`."""
        self.agenda.set(key, old_ms, new_ms)
        if new_ms is not None and new_ms < self.clock.quiet_before_ms:
            self.clock.quiet_before_ms = new_ms

    def begin(self) -> None:
        self.agenda.rollback()
        super().begin()

    rollback = begin

    def stage(self, encoded: Encoded) -> None:
        self.agenda.stage()
        super().stage(encoded)

    def sealing(self) -> Steps[Sealed]:
        sealed = yield from super().sealing()
        self.agenda.seal()
        return sealed

    def merge(self) -> None:
        super().merge()
        self.agenda.merge()

    def drop(self) -> None:
        self.agenda.drop()
        super().drop()

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        if self.name in cleared:
            self.agenda = Agenda()
        else:
            for key, new in changes.get(self.name, {}).items():
                old = self.shards.committed_value(key)
                self.agenda.load(key, self.due_ms(old), self.due_ms(new))
        super().apply_changes(changes, cleared)

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        super().clear(shard_count)
        self.agenda = Agenda()

    def load(self, slices: Iterable[ShardSlice]) -> None:
        parts = list(slices)
        super().load(parts)
        for part in parts:
            for key, value in part.entries.items():
                self.agenda.load(key, None, self.due_ms(value))


class ExpiringStore(ScheduledStore[K, V], Generic[K, V]):
    """Entries that expire `ttl_ms` after their last touch, by stream time.

    An entry without a stamp was written before the map had a ttl: it does not expire until it is touched.
    """

    def __init__(
        self,
        view: Any,
        keys: KeyCodec[K],
        values: ValueCodec[V],
        entry_bytes_max: int,
        ttl_ms: int,
        *,
        ordered: bool = False,
    ) -> None:
        super().__init__(view, keys, values, entry_bytes_max, ordered=ordered)
        self.ttl_ms = ttl_ms
        # When a key was touched, if that was since the last staging; None: it was deleted.
        self._touched_ms: dict[K, int | None] = {}

    def due_ms(self, stored: bytes | None) -> int | None:
        return None if stored is None else self._due(touched_at(stored))

    def refresh(self, key: K) -> None:
        """Note that a key in `live`, which is not deleted, was touched now."""
        now_ms = self.clock.stream_time_ms
        if self._touched_ms.get(key) != now_ms:
            self._set(key, now_ms)

    def forget(self, key: K) -> None:
        """Note that a key in `live` was deleted now."""
        self._set(key, None)

    def _set(self, key: K, now_ms: int | None) -> None:
        encoded = self._pack_key(key)
        if key in self._touched_ms:
            before_ms = self._touched_ms[key]
        else:
            before_ms = touched_at(self._below(encoded, crc32(encoded) & self._mask) or b"")
        self._touched_ms[key] = now_ms
        if before_ms != now_ms:
            self.move(encoded, self._due(before_ms), self._due(now_ms))

    def expire(self, key: bytes) -> None:
        """Delete an entry, as a handler would. Raises StoredValueUnreadable: the key or the value has another type
        now."""
        del self.view[self._keys.decode(key)]

    def _forget_touched(self) -> None:
        super()._forget_touched()
        self._touched_ms.clear()

    def stage(self, encoded: Encoded) -> None:
        for key, (packed, below, _) in zip(self.live, self._places, strict=True):
            value = encoded[packed]
            before_ms = None if below is None else touched_at(below)
            touched_ms = self._touched_ms.get(key, before_ms)
            if value is not None and touched_ms is not None:
                encoded[packed] = stamped(touched_ms, value)
        super().stage(encoded)

    def _due(self, touched_ms: int | None) -> int | None:
        return None if touched_ms is None else touched_ms + self.ttl_ms


def check_expiry(ttl_ms: object, refresh: object) -> None:
    """Raise UsageError if no map can have this ttl or this `refresh`."""
    if refresh not in ("write", "read"):
        raise UsageError(
            f'MapState: refresh={refresh!r} is neither "write" nor "read"',
            hint='use refresh="read" if reading an entry is to keep it as well',
        )
    if ttl_ms is None and refresh != "write":
        raise UsageError("MapState: refresh= without ttl_ms=", hint="set ttl_ms= as well")
    if ttl_ms is not None and (type(ttl_ms) is not int or not 1 <= ttl_ms <= TTL_MS_MAX):
        raise UsageError(
            f"MapState: ttl_ms={ttl_ms!r} is not a number of milliseconds from 1 to {TTL_MS_MAX}",
            hint="use an int: an hour is ttl_ms=3_600_000",
        )

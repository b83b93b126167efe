"""Pending timers: entries of two reserved stores, so snapshots, changes, digests and audits know them. Pure.

A key names the timer, its value is the time at which it is due. So a timer that is set again replaces itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from snapreplay.counted import counted
from snapreplay.errors import RecordError
from snapreplay.state.contract import ENTRY_BYTES_MAX
from snapreplay.state.keys import KeyCodec
from snapreplay.state.scheduled import ScheduledStore
from snapreplay.state.values import ABSENT, DELETED, ValueCodec
from snapreplay.times import is_far_ahead, suspected_unit

AT_MS_MAX = (1 << 62) - 1
"""Far behind any timestamp that Kafka takes."""

YEAR_MS = 365 * 86_400_000
LONG_AGO_MS = 10 * YEAR_MS
"""A delay that is taken for a time lies in 1970, and no late record is so late."""


class TimerKey(NamedTuple):
    """The key of a timer: of which store and key; `key` is encoded. Of a periodic timer both are empty."""

    store: str
    name: str
    key: bytes

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decoded(cls, data: bytes) -> TimerKey:
        return _decode(data)


_decode = msgspec.msgpack.Decoder(TimerKey).decode


class TimerStore(ScheduledStore[bytes, int]):
    """A store of timers: encoded `TimerKey` → when it is due, in milliseconds."""

    def __init__(self, name: str) -> None:
        super().__init__(None, _RawKeys(), ValueCodec(int), ENTRY_BYTES_MAX)
        self.give_name(name)

    def due_ms(self, stored: bytes | None) -> int | None:
        return None if stored is None else self._unpack(stored)

    def at_ms(self, key: bytes) -> int | None:
        """Say when this timer is due; None: it is not set."""
        value: Any = self.live.get(key, ABSENT)
        if value is ABSENT:
            value = self.touch(key)
        return None if value in (ABSENT, DELETED) else value

    def set(self, key: bytes, at_ms: int | None) -> None:
        """Set the timer; None: remove it, if it is there."""
        before_ms = self.at_ms(key)
        if before_ms == at_ms:
            return
        self.agenda.set(key, before_ms, at_ms)
        if at_ms is None:
            self.live[key] = DELETED
            self.went(key)
        elif key not in self.live:
            self.touch(key, at_ms)
        else:
            self.live[key] = at_ms
            if before_ms is None:
                self.came(key)


class _RawKeys(KeyCodec[bytes]):
    """The keys are encoded by `TimerKey`."""

    def __init__(self) -> None:
        super().__init__(bytes)
        self.pack = bytes
        self.unpack = bytes


def _seems(at_ms: object) -> str:
    unit = suspected_unit(at_ms) if isinstance(at_ms, int | float) and math.isfinite(at_ms) else ""
    return f": it looks like {unit}" if unit else ""


class Scheduler:
    """The scheduler that the maps of a state set timers with. `names`: of the timers that the app has a handler for.
    `firing_ms`: the time of the timer that is being handled; None: none is."""

    def __init__(self, store: TimerStore, names: Collection[str]) -> None:
        self.firing_ms: int | None = None
        self._store = store
        self._names = names

    def set(self, store: str, key: bytes, at_ms: object, name: str | None, now_ms: int = -1) -> None:
        """Set a timer. `now_ms`: stream time. Raises RecordError: the app has no such timer, or this is no time, or one
        that nobody can mean."""
        if type(at_ms) is not int or not 0 <= at_ms <= AT_MS_MAX:
            raise RecordError(
                f"schedule: at_ms={at_ms!r} is not a time in milliseconds since the epoch{_seems(at_ms)}",
                hint="use an int from 0 on, such as `record.timestamp_ms + 60_000`",
            )
        is_long_ago = at_ms < min(LONG_AGO_MS, now_ms - LONG_AGO_MS)
        if (is_long_ago or is_far_ahead(at_ms, now_ms)) and suspected_unit(at_ms):
            raise RecordError(
                f"schedule: at_ms={at_ms} is not a time in milliseconds since the epoch{_seems(at_ms)}",
                hint="times are in milliseconds: of seconds, `seconds * 1000`. If it is the time of the record, its"
                " producer must send milliseconds",
            )
        # Stream time itself may be absurd, by one record with a wrong time; then a time of today is no delay.
        if is_long_ago:
            raise RecordError(
                f"schedule: at_ms={at_ms} is {(now_ms - at_ms) // YEAR_MS} years before stream time, {now_ms}: it is a"
                " time, not a delay",
                hint="add a delay to a time: `record.timestamp_ms + 60_000`",
            )
        if self.firing_ms is not None:  # else a timer could fire for ever, and no record be processed
            at_ms = max(at_ms, self.firing_ms + 1)
        self._store.set(self._encoded(store, key, name), at_ms)

    def cancel(self, store: str, key: bytes, name: str | None) -> bool:
        """Cancel a timer; say whether it was set. Raises as `set`."""
        timer = self._encoded(store, key, name)
        was_set = self._store.at_ms(timer) is not None
        self._store.set(timer, None)
        return was_set

    def at_ms(self, store: str, key: bytes, name: str | None) -> int | None:
        """Say when it is due; None: it is not set. Raises as `set`."""
        return self._store.at_ms(self._encoded(store, key, name))

    def _encoded(self, store: str, key: bytes, name: str | None) -> bytes:
        names = sorted(self._names)
        if name is None and len(names) == 1:
            return TimerKey(store, names[0], key).encoded()
        if name is None or name not in self._names:
            raise RecordError(
                f"the app has no timer {name!r}"
                if name is not None
                else f"the app has {counted(len(names), 'timer')} of keys, and none was named",
                hint=f'use timer="…" with the name of an `@app.timer("…")`: {", ".join(names) or "there is none"}',
            )
        return TimerKey(store, name, key).encoded()

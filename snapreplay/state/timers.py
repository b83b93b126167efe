"""Pending timers: entries of two reserved stores, so snapshots, changes, digests and audits know them. Pure.

A key names the timer, its value is the time at which it is due. So a timer that is set again replaces itself.

The timetable says what is due next: timers first, then entries that expire, and last the periodic timers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from snapreplay.errors import RecordError
from snapreplay.state.agenda import NotInOrder
from snapreplay.state.contract import ENTRY_BYTES_MAX
from snapreplay.state.keys import KeyCodec
from snapreplay.state.scheduled import ExpiringStore, ScheduledStore
from snapreplay.state.steps import Steps
from snapreplay.state.values import ValueCodec
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

    def set(self, key: bytes, at_ms: int | None) -> None:
        """Set the timer; None: remove it, if it is there."""
        before_ms = self.look(key)
        if before_ms == at_ms:
            return
        self.move(key, before_ms, at_ms)
        if at_ms is None:
            self.remove(key)
        else:
            self.put(key, at_ms)


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
        self._names = sorted(names)

    def set(self, store: str, key: bytes, at_ms: object, name: str, now_ms: int = -1) -> None:
        """Set a timer. `now_ms`: stream time. Raises RecordError: the app has no such timer, or this is no time, or not
        a plausible one."""
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

    def cancel(self, store: str, key: bytes, name: str) -> bool:
        """Cancel a timer; say whether it was set. Raises as `set`."""
        timer = self._encoded(store, key, name)
        was_set = self._store.look(timer) is not None
        self._store.set(timer, None)
        return was_set

    def at_ms(self, store: str, key: bytes, name: str) -> int | None:
        """Say when it is due; None: it is not set. Raises as `set`."""
        return self._store.look(self._encoded(store, key, name))

    def _encoded(self, store: str, key: bytes, name: str) -> bytes:
        names = self._names
        if name not in names:
            raise RecordError(
                f"the app has no timer {name!r}",
                hint=f'use timer="…" with the name of an `@app.timer("…")`: {", ".join(names) or "there is none"}',
            )
        return TimerKey(store, name, key).encoded()


class Kind(IntEnum):
    """The kinds of events, in the order in which they are due at the same time."""

    TIMER = 0
    EXPIRY = 1
    PERIOD = 2


class Event(NamedTuple):
    """Something that is due; events are due in the order of these tuples. A `key` of a timer is a `TimerKey`, encoded;
    `store` is that of an entry that expires, else empty."""

    at_ms: int
    kind: Kind
    store: str
    key: bytes


class Timetable:
    """The timetable of one state.

    At the same time, a timer fires before an entry expires: it still sees it. Periodic timers come after everything
    else that is due up to a time, because they fire once, however many periods have passed.

    Attributes:
        timers: of the keys; None: the app has none.
        periods: when each periodic timer is due next; None as `timers`.
        keys: store name → what decodes its keys.
        stores: those whose entries may become due: timers, periodic timers, maps with a ttl.
    """

    def __init__(
        self,
        expiring: Mapping[str, ExpiringStore[Any, Any]],
        timers: TimerStore | None = None,
        periods: TimerStore | None = None,
        keys: Mapping[str, Callable[[bytes], Any]] | None = None,
    ) -> None:
        """Take `keys`: of each store, what decodes its keys."""
        self.keys = keys or {}
        self.timers = timers
        self.periods = periods
        self._expiring = dict(sorted(expiring.items()))
        stores = (timers, periods, *self._expiring.values())
        self.stores: list[ScheduledStore[Any, Any]] = [each for each in stores if each is not None]

    @property
    def not_before_ms(self) -> int | None:
        """Nothing is due before this time, which is up to a second too early; None: nothing at all."""
        times = [store.agenda.not_before_ms for store in self.stores]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    @property
    def pending_timers(self) -> int:
        return 0 if self.timers is None else len(self.timers)

    @property
    def next_due_ms(self) -> dict[str, int]:
        """Store → stream time at which its next entry is due: a timer, a periodic timer, or one that expires. To be
        shown, as `Agenda.next_ms`."""
        times = {store.name: store.agenda.next_ms for store in self.stores}
        return {name: at_ms for name, at_ms in times.items() if at_ms is not None}

    def finding(self, up_to_ms: int) -> Steps[Event | None]:
        """Return the first event at or before `up_to_ms`. The state must not change before the last step."""
        while True:
            try:
                return self._first(up_to_ms)
            except NotInOrder as unordered:  # seldom: asking each time would cost more
                yield from unordered.agenda.ordering(up_to_ms)

    def _first(self, up_to_ms: int) -> Event | None:
        first: Event | None = None
        if self.timers is not None:
            due = self.timers.agenda.first(up_to_ms)
            if due is not None:
                first = Event(due[0], Kind.TIMER, "", due[1])
        for name, store in self._expiring.items():
            due = store.agenda.first(up_to_ms)
            if due is not None:
                event = Event(due[0], Kind.EXPIRY, name, due[1])
                first = event if first is None else min(first, event)
        if first is None and self.periods is not None:
            due = self.periods.agenda.first(up_to_ms)
            if due is not None:
                first = Event(due[0], Kind.PERIOD, "", due[1])
        return first

    def expire(self, event: Event) -> None:
        self._expiring[event.store].expire(event.key)

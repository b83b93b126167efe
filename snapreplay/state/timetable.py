"""The events that are due next in a state: timers first, then entries that expire, and last the periodic timers.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from snapreplay.state.agenda import NotInOrder
from snapreplay.state.scheduled import ExpiringStore, ScheduledStore
from snapreplay.state.steps import Steps
from snapreplay.state.timers import TimerStore


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

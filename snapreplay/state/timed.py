"""A state with timers: its own maps, and two reserved stores beside them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from snapreplay.state.composite import CompositeStore
from snapreplay.state.mapstore import MapStore
from snapreplay.state.scheduled import ExpiringStore
from snapreplay.state.timers import Scheduler, TimerStore
from snapreplay.state.timetable import Timetable
from snapreplay.state.unknown_store import PERIODS_STORE, TIMERS_STORE


class TimedStore(CompositeStore):
    """The store with timers around the store of a `MapState` or `Stores`."""

    def __init__(self, around: CompositeStore, names: Collection[str]) -> None:
        """Take `names` of the timers that the app has a handler for."""
        timers, periods = TimerStore(TIMERS_STORE), TimerStore(PERIODS_STORE)
        maps = around.maps
        reserved = {TIMERS_STORE: timers, PERIODS_STORE: periods}
        super().__init__(around.view, {**maps, **reserved}, around.retired)
        self.scheduler = Scheduler(timers, names)
        for store in maps.values():
            store.scheduler = self.scheduler
        decoders = {name: store.decode_key for name, store in maps.items()}
        self.timetable = Timetable(expiring(maps), timers, periods, decoders)


def expiring(maps: Mapping[str, MapStore[Any, Any]]) -> dict[str, ExpiringStore[Any, Any]]:
    return {name: store for name, store in maps.items() if isinstance(store, ExpiringStore)}

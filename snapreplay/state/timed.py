"""A state with timers: its own maps, and two reserved stores beside them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from snapreplay.state.composite import CompositeStore
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.mapstore import MapStore
from snapreplay.state.scheduled import ExpiringStore
from snapreplay.state.shards import SHARD_COUNT
from snapreplay.state.timers import Scheduler, TimerStore
from snapreplay.state.timetable import Timetable
from snapreplay.state.unknown_store import PERIODS_STORE, TIMERS_STORE


class TimedStore(CompositeStore):
    """Around the store of a `MapState` or `Stores`."""

    def __init__(self, around: MapStore[Any, Any] | CompositeStore, names: Collection[str]) -> None:
        """`names` of the timers that the app has a handler for."""
        self._around = around
        timers, periods = TimerStore(TIMERS_STORE), TimerStore(PERIODS_STORE)
        maps = maps_of(around)
        retired = around.retired if isinstance(around, CompositeStore) else ()
        super().__init__(
            around.view, {**maps, TIMERS_STORE: timers, PERIODS_STORE: periods}, retired
        )
        self.scheduler = Scheduler(timers, names)
        for store in maps.values():
            store.scheduler = self.scheduler
        decoders = {name: store.decode_key for name, store in maps.items()}
        self.timetable = Timetable(expiring(maps), timers, periods, decoders)

    @property
    def stream_time_ms(self) -> int:
        """What the view shows is that of the store around which this one is."""
        return self._around.stream_time_ms

    @stream_time_ms.setter
    def stream_time_ms(self, value: int) -> None:
        self._around.stream_time_ms = value

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        super().clear(shard_count)
        self._around.stream_time_ms = -1

    def committed_view(self) -> Any:
        return self._around.committed_view()


def maps_of(store: MapStore[Any, Any] | CompositeStore) -> Mapping[str, MapStore[Any, Any]]:
    return store.maps if isinstance(store, CompositeStore) else {DEFAULT_STORE: store}


def expiring(maps: Mapping[str, MapStore[Any, Any]]) -> dict[str, ExpiringStore[Any, Any]]:
    return {name: store for name, store in maps.items() if isinstance(store, ExpiringStore)}

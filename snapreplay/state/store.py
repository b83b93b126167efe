"""Gives the engine the store of what a user's state factory made. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from snapreplay.errors import UsageError
from snapreplay.state.composite import CompositeStore
from snapreplay.state.contract import State, Store
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.map import MapState
from snapreplay.state.mapstore import MapStore
from snapreplay.state.objects import ObjectStore
from snapreplay.state.scheduled import ExpiringStore
from snapreplay.state.stores import Stores
from snapreplay.state.timers import Scheduler, TimerStore
from snapreplay.state.timetable import Timetable
from snapreplay.state.unknown_store import PERIODS_STORE, TIMERS_STORE


def store_of(state: object, timers: Collection[str] | None = None) -> Store:
    """Return a store of the maps of a `MapState` or `Stores`, or a new `ObjectStore` around any other `State`.

    Args:
        timers: names of the app's timers of keys; None: the app has no timers at all.

    Raises:
        UsageError: none of them, or a class instead of an object, or timers for a state that is no map.
    """
    if isinstance(state, MapState | Stores):
        made: MapStore[Any, Any] | CompositeStore = state.__snapreplay_store__()
        store = CompositeStore(state, {DEFAULT_STORE: made}) if isinstance(made, MapStore) else made
        if timers is not None:
            return TimedStore(store, timers)
        if expire := expiring(store.maps):
            store.timetable = Timetable(expire)
        return store
    if isinstance(state, State) and not isinstance(state, type):
        if timers is not None:
            raise UsageError(
                f"{type(state).__name__} is no map, so it cannot have timers: pending timers, periodic ones included,"
                " are entries that change with a batch, and a state with snapshot() and restore() has no changes",
                hint="keep it as an entry of a map: `Stores(main=MapState(str, …, default=…))` and `state.main[name]`",
            )
        return ObjectStore(state)
    missing = [name for name in ("snapshot", "restore") if not hasattr(state, name)]
    what = f"the class {state.__name__}" if isinstance(state, type) else f"{state!r:.80}"
    raise UsageError(
        f"{what} cannot be the state of a partition"
        + (f": it has no {' and no '.join(missing)}" if missing else ""),
        hint="pass as state= a function that returns a new MapState(str, ...), "
        "or an object with snapshot() and restore()",
    )


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

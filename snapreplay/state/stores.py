"""A state of several named stores, as handlers see it, and the engine's store of any state. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from keyword import iskeyword
from typing import Any

from snapreplay.counted import counted
from snapreplay.errors import StopError, UsageError
from snapreplay.state.calls import CallStore, counting_others
from snapreplay.state.composite import Store
from snapreplay.state.contract import CALLS_STORE, PERIODS_STORE, RESERVED, TIMERS_STORE
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.fields import Layout, StoreFields
from snapreplay.state.map import MapState
from snapreplay.state.mapstore import MapStore
from snapreplay.state.scheduled import ExpiringStore
from snapreplay.state.steps import Steps
from snapreplay.state.timers import Scheduler, TimerKey, TimerStore, Timetable

_LEGAL = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class Stores:
    """Several named maps that form one state, with one digest and one snapshot.

    The short form is `Stores(items=MapState(bytes, Item), carts=MapState(str, Cart))`. With a subclass whose `__init__`
    sets the stores as attributes, type checkers know the types of each store.

    You may add a store at any time; it begins empty. Name a store that is no longer needed in `retired`: the next
    batch deletes all its entries. Otherwise a partition with entries of that store stops (`UnknownStore`).

    Attributes:
        retired: names of stores that are no longer needed.
    """

    retired: Sequence[str] = ()

    def __init__(self, *, retired: Sequence[str] = (), **stores: MapState[Any, Any]) -> None:
        """Declare the stores, or raise UsageError: an illegal name, or something else than a `MapState`."""
        if retired:
            self.retired = retired
        for name, store in stores.items():
            setattr(self, name, store)

    def __snapreplay_store__(self) -> Store:
        """Return the engine's side of this state, or raise UsageError: no store at all, one map under two names, or a
        retired name that is none."""
        made = vars(self).get(_MADE)
        if made is None:
            made = Store(self, self._checked(), self.retired)
            self.__dict__[_MADE] = made
        store: Store = made
        return store

    @property
    def stream_time_ms(self) -> int:
        """Highest record timestamp so far, including the current record's; -1 before the first."""
        first = next(iter(maps_of(self).values()))
        return first.stream_time_ms

    def __setattr__(self, name: str, value: object) -> None:
        if name == "retired":
            object.__setattr__(self, name, value)
            return
        if not isinstance(value, MapState):
            raise UsageError(
                f"{type(self).__name__}.{name} = {value!r:.80}: only a MapState can be an attribute of a state,"
                " because everything else is lost in a crash",
                hint="keep it in a MapState",
            )
        if _MADE in vars(self):
            raise UsageError(
                f"{type(self).__name__}.{name} cannot be set after the state was made",
                hint=f"change the entries of the store: `state.{name}[key] = value`, `state.{name}.clear()`",
            )
        if not _LEGAL.fullmatch(name) or iskeyword(name) or hasattr(type(self), name):
            raise UsageError(
                f"{name!r} cannot be the name of a store",
                hint="use up to 64 letters, digits and underscores, beginning with a letter, and no name that the"
                " class has already",
            )
        value.__snapreplay_store__().give_name(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise UsageError(
            f"{type(self).__name__}.{name} cannot be deleted", hint=f"`state.{name}.clear()` deletes its entries"
        )

    def __getattr__(self, name: str) -> MapState[Any, Any]:
        names = ", ".join(maps_of(self)) or "none"
        raise AttributeError(f"{type(self).__name__} has no store {name!r}; it has {names}")

    def __repr__(self) -> str:
        stores = ", ".join(f"{name}={store!r}" for name, store in maps_of(self).items())
        return f"<{type(self).__name__} {stores}>"

    def _checked(self) -> dict[str, Any]:
        maps = maps_of(self)
        what = type(self).__name__
        if not maps:
            raise UsageError(
                f"{what} has no store",
                hint="give it at least one: `Stores(items=MapState(str, dict))`, or `self.items = …` in `__init__`",
            )
        owners: dict[int, str] = {}
        for name, store in maps.items():
            other = owners.setdefault(id(store), name)
            if other != name:
                raise UsageError(f"{what}: {other} and {name} are the same MapState", hint="make one for each")
        for name in _names(self.retired):
            if name in maps or not (_LEGAL.fullmatch(name) or name in RESERVED):
                raise UsageError(
                    f"{what}: {name!r} cannot be retired",
                    hint="name in retired only stores that the app had before and no longer has",
                )
        return {name: store.__snapreplay_store__() for name, store in maps.items()}


_MADE = "_made"


def maps_of(view: object) -> dict[str, MapState[Any, Any]]:
    """Return the maps of a state, in the order of their names: of a `Stores`; of a `MapState` itself, named ""; of
    anything else none."""
    if isinstance(view, MapState):
        return {"": view}
    if not isinstance(view, Stores):
        return {}
    found = {name: each for name, each in vars(view).items() if isinstance(each, MapState)}
    return {name: found[name] for name in sorted(found)}


def fields_of(view: object) -> dict[str, StoreFields]:
    """Return what the values of a state have in them, by store."""
    found = {n or DEFAULT_STORE: each.__snapreplay_fields__() for n, each in maps_of(view).items()}
    return {
        name: fields for name, fields in found.items() if fields.paths or fields.dropped or fields.layout != Layout()
    }


def _names(retired: object) -> Sequence[str]:
    if isinstance(retired, str) or not isinstance(retired, Sequence):
        raise UsageError(f"retired={retired!r} is not a sequence of names", hint='use `retired=("offers",)`')
    return retired


def store_of(state: object, timers: Collection[str] | None = None, calls: Collection[str] = ()) -> Store:
    """Return a store of the maps of a `MapState` or `Stores`. `timers`: names of the app's timers of keys; None: the
    app has no timers at all. `calls`: names of its calls. Raises UsageError: it is neither of them."""
    if isinstance(state, MapState | Stores):
        made: MapStore[Any, Any] | Store = state.__snapreplay_store__()
        store = Store(state, {DEFAULT_STORE: made}) if isinstance(made, MapStore) else made
        if calls:
            store = Store(state, {**store.maps, CALLS_STORE: CallStore(calls)}, store.retired)
        if timers is not None:
            return TimedStore(store, timers)
        if expire := expiring(store.maps):
            store.timetable = Timetable(expire)
        return store
    what = f"the class {state.__name__}" if isinstance(state, type) else f"{state!r:.80}"
    raise UsageError(
        f"{what} cannot be the state of a partition",
        hint="pass as state= a function that returns a new MapState(str, …) or Stores(…)",
    )


class UnknownTimer(StopError):
    """Timers of keys are pending, and the app has no handler for them: the timer was renamed or removed.

    Safe: The partition stops before the first record. The timers stay as they are, with all entries.
    """


class TimedStore(Store):
    """The store with timers around the store of a `MapState` or `Stores`."""

    def __init__(self, around: Store, names: Collection[str]) -> None:
        """Take `names` of the timers that the app has a handler for."""
        timers, periods = TimerStore(TIMERS_STORE), TimerStore(PERIODS_STORE)
        maps = around.maps
        reserved = {TIMERS_STORE: timers, PERIODS_STORE: periods}
        super().__init__(around.view, {**maps, **reserved}, around.retired)
        self.scheduler = Scheduler(timers, names)
        for store in maps.values():
            store.scheduler = self.scheduler
        self._timer_names = frozenset(names)
        decoders = {name: store.decode_key for name, store in maps.items()}
        self.timetable = Timetable(expiring(maps), timers, periods, decoders)

    def refusing_pending(self) -> Steps[None]:
        yield from super().refusing_pending()
        names = (TimerKey.decoded(key).name for key in self.maps[TIMERS_STORE].shards)
        unknown = yield from counting_others(names, self._timer_names)
        if unknown:
            raise _unknown_timers(unknown, sorted(self._timer_names))


def _unknown_timers(counts: Mapping[str, int], known: Sequence[str]) -> UnknownTimer:
    listed = ", ".join(f"{counted(count, 'timer')} {name!r}" for name, count in sorted(counts.items()))
    has = f"it has {', '.join(map(repr, known))}" if known else "it has periodic timers only"
    name = min(counts)
    return UnknownTimer(
        f"the log has {listed} pending, and this app has no handler for that: {has}",
        hint=f'nothing is lost. If the timer was renamed, keep the old name beside the new one: `@app.timer("{name}")`'
        ' above the same function, and name the new one where it is set: `schedule(…, timer="…")`. If its timers are to'
        " be dropped, give them a handler that does nothing, until none is pending; or deploy the version that set them"
        " again",
        timers=sorted(counts),
    )


def expiring(maps: Mapping[str, MapStore[Any, Any]]) -> dict[str, ExpiringStore[Any, Any]]:
    return {name: store for name, store in maps.items() if isinstance(store, ExpiringStore)}

"""The state as handlers see it: a dict with one transaction per batch. Pure."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, ItemsView, Iterator, MutableMapping, Sequence, ValuesView
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypedDict, TypeVar, Unpack, overload

from snapreplay import engine
from snapreplay.counted import counted
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.contract import ENTRY_BYTES_MAX
from snapreplay.state.fields import StoreFields, check_dropped
from snapreplay.state.gate import OPEN, refuse_write
from snapreplay.state.keys import K, KeyCodec, MissingKey
from snapreplay.state.mapstore import MapStore
from snapreplay.state.round_trip import lost_attribute
from snapreplay.state.scheduled import ExpiringStore, check_expiry
from snapreplay.state.sorted_entries import KeyBounds
from snapreplay.state.staging import encoded_default
from snapreplay.state.timers import Scheduler
from snapreplay.state.values import ABSENT, DELETED, Missing, ValueCodec

if TYPE_CHECKING:
    from typing_extensions import TypeForm

V = TypeVar("V")
D = TypeVar("D")


class _Options(TypedDict, Generic[V], total=False):
    """The options of `MapState`, for its overloads."""

    default: Callable[[], V] | None
    entry_bytes_max: int
    ordered: bool
    ttl_ms: int | None
    refresh: Literal["write", "read"]
    dropped: Sequence[str]


class MapState(MutableMapping[K, V], Generic[K, V]):
    """A dict from keys of one type (str, bytes, int, or a tuple of them) to values that msgpack returns unchanged.

    - `state[k]` on a missing key stores and returns a copy of the default, or raises KeyError if there is none.
      `get`, `in` and `pop` never store, so changes to the default that `get` returned are lost.
    - Values may be changed in place. A batch has the same effect as its records one by one.
    - Iteration is in key order. It costs O(n log n), or O(n) if the map is ordered. It decodes each value, and keeps
      mutable ones until the batch ends. It covers the keys at its start: keys that are deleted meanwhile are omitted,
      and added ones are not included.
    - At the end of a batch, `RecordError` is raised for values that would read back as another type or value, for one
      mutable object in two places, and for entries above `entry_bytes_max`. A key of another type raises it at once.

    Args:
        ordered: keep the entries in key order, for `range`. Costs memory, and 2 to 3 µs per key that is added,
            deleted or set to a new value.
        default: called once, by this constructor; each missing key gets its own copy of the result.
        entry_bytes_max: maximum size of an encoded key and value together.
        ttl_ms: an entry expires when stream time has passed its last touch by this many milliseconds. `state[k]`,
            assignment and `setdefault` touch an entry; `in` and iteration do not.
        refresh: "read": `get` touches an entry, too.
        dropped: fields of the values, such as `"email"` or `"address.zip"`, that are no longer needed, or whose
            default is right for values stored without them. Otherwise a partition with such values stops
            (`UnknownFields`).
    """

    def __new__(
        cls, *args: object, ttl_ms: int | None = None, refresh: str = "write", **_kwargs: object
    ) -> MapState[K, V]:
        """Make a map. One without a ttl must not pay for it: one with a ttl has a class of its own. So has one whose
        keys the engine looks up."""
        if cls is not MapState:
            return super().__new__(cls)
        if ttl_ms is None and refresh == "write":
            if engine.compiled is not None and args[:1] in ((str,), (bytes,)):
                made = _engine_map(engine.compiled.Getter)
                return made.__new__(made)
            return super().__new__(cls)
        return super().__new__(_ExpiringMap if refresh == "write" else _ReadRefreshedMap)

    @overload
    def __init__(self, key_type: type[K], value_type: type[V], **options: Unpack[_Options[V]]) -> None: ...
    @overload  # an alias of a tuple and a union are no `type`, but a form of one (PEP 747)
    def __init__(self, key_type: TypeForm[K], value_type: TypeForm[V], **options: Unpack[_Options[V]]) -> None: ...
    @overload  # without PEP 747: MapState[str, A | B](str, A | B), or V is what `default` returns
    def __init__(self, key_type: type[K], value_type: UnionType, **options: Unpack[_Options[V]]) -> None: ...
    def __init__(
        self,
        key_type: Any,
        value_type: Any,
        *,
        default: Callable[[], V] | None = None,
        entry_bytes_max: int = ENTRY_BYTES_MAX,
        ordered: bool = False,
        ttl_ms: int | None = None,
        refresh: Literal["write", "read"] = "write",
        dropped: Sequence[str] = (),
    ) -> None:
        """Declare a map, or raise UsageError: a key type, value type, default or ttl that cannot work."""
        check_expiry(ttl_ms, refresh)
        if ttl_ms is not None and not isinstance(self, _ExpiringMap):
            raise UsageError(
                f"MapState: ttl_ms= in a subclass, {type(self).__name__}, would not see the touches of its entries",
                hint="use MapState itself, and put your methods into functions",
            )
        self._keys = KeyCodec(key_type)
        self._values = ValueCodec[V](value_type, check_dropped(dropped))
        values, self._key_type = self._values, self._keys.own_type
        self._default = None if default is None else encoded_default(values, default)
        self._store: MapStore[K, V]
        if ttl_ms is None:
            self._store = MapStore(self, self._keys, values, entry_bytes_max, ordered=ordered)
        else:
            self._store = ExpiringStore(self, self._keys, values.stamped(), entry_bytes_max, ttl_ms, ordered=ordered)
        self._ordered = ordered
        self._live = self._store.live
        self._touch = self._store.touch
        if engine.compiled is not None and isinstance(self, engine.compiled.Getter):
            self.read_with(self._store.look_up, MapState.__getitem__, Missing)

    def __snapreplay_types__(self) -> tuple[type[K], type[V]]:
        """Return the types of keys and values, for those who read what is stored."""
        return self._keys.type, self._values.type

    def __snapreplay_fields__(self) -> StoreFields:
        """Return the fields of the values, for what is recorded of them."""
        return self._values.fields

    def __snapreplay_store__(self) -> MapStore[K, V]:
        """Return the engine's side of this state."""
        return self._store

    @property
    def stream_time_ms(self) -> int:
        """Highest record timestamp so far, including the current record's; -1 before the first."""
        return self._store.clock.stream_time_ms

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and type(self).__module__.startswith("snapreplay."):
            raise lost_attribute(self._values.place, name)
        object.__setattr__(self, name, value)

    def __copy__(self) -> NoReturn:
        raise RecordError(
            f"{self._values.place} cannot be copied: a copy would be the same map, and change with it",
            hint=f"make a dict of its entries: `dict({self._values.place})`",
        )

    def __getitem__(self, key: K) -> V:
        if type(key) is not self._key_type:
            self._keys.check(key)
        value = self._live.get(key, ABSENT)
        if value is ABSENT:
            value = self._touch(key)
            return self._store_default(key) if value is ABSENT else value
        return self._store_default(key) if value is DELETED else value

    def __setitem__(self, key: K, value: V) -> None:
        if type(key) is not self._key_type:
            self._keys.check(key)
        if self._store.gate.owner != get_ident():
            refuse_write(self._store.gate, f"{self._keys.place}[{key!r}] was set")
        before = self._live.get(key, ABSENT)
        if before is ABSENT:
            self._touch(key, value)
            return
        self._live[key] = value
        if before is DELETED:
            self._store.key_added(key)

    def __delitem__(self, key: K) -> None:
        if self._store.gate.owner != get_ident():
            refuse_write(self._store.gate, f"{self._keys.place}[{key!r}] was deleted")
        if self._peek(key) is ABSENT:
            raise MissingKey(self._values.place, key, "so it cannot be deleted", "{}.pop(key, None)")
        self._live[key] = DELETED
        self._store.key_removed(key)

    def __contains__(self, key: object) -> bool:
        if type(key) is not self._key_type:
            self._keys.check(key)
        known: Any = key
        value: V | Missing = self._live.get(known, ABSENT)
        if value is ABSENT:
            return self._store.has_below(known)
        return value is not DELETED

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[K]:
        return (key for key in self._store.in_order() if key in self)

    def __repr__(self) -> str:
        value_type = getattr(self._values.type, "__name__", repr(self._values.type))
        return f"<MapState {self._keys.name} → {value_type}, {counted(len(self), 'entry')}>"

    @overload
    def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Return the value, which may be changed in place, or `default`, which is not stored."""
        value = self._peek(key)
        return default if value is ABSENT else value

    @overload
    def pop(self, key: K) -> V: ...
    @overload
    def pop(self, key: K, default: V) -> V: ...
    @overload
    def pop(self, key: K, default: D) -> V | D: ...
    def pop(self, key: K, default: Any = ABSENT) -> Any:
        """Remove a key as dict does; KeyError if it is missing and no default is given."""
        value = self._peek(key)
        if value is not ABSENT:
            del self[key]
            return value
        if default is ABSENT:
            raise MissingKey(self._values.place, key, "and pop has no default", "{}.pop(key, None)")
        return default

    @overload
    def setdefault(self: MapState[K, D | None], key: K, default: None = None) -> D | None: ...
    @overload
    def setdefault(self, key: K, default: V) -> V: ...
    def setdefault(self, key: K, default: Any = None) -> Any:
        """Return the value as dict does: `default` is stored if the key is missing."""
        value = self._peek(key)
        if value is ABSENT:
            self[key] = value = default
        return value

    def clear(self) -> None:
        """Delete every key: one tombstone each."""
        for key in self:
            del self[key]

    def items(self) -> ItemsView[K, V]:
        """Return the entries in key order, without touching them."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return the values in key order, without touching their entries."""
        return _Values(self)

    def range(
        self, *, prefix: Any = None, start: Any = None, end: Any = None, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        """Yield entries in key order. The cost is about 10 µs, plus the entries that are read.

        It covers the keys at the time of the call, including changes of the current batch. Keys that are deleted
        later are omitted, and added ones are not included.

        Args:
            prefix: only keys that begin with it; for tuples, their first parts, such as `("tea",)`. Not for ints.
            start, end: only keys with `start <= key < end`; for tuples also their first parts.
            reverse: the last one first.

        Raises:
            RecordError: a bound has another type than the keys, or cannot be encoded.
            UsageError: the map is not ordered.
        """
        bounds = self._keys.bounds(KeyBounds(prefix, start, end), is_ordered=self._ordered)
        return self._store.pairs(bounds, reverse=reverse)

    def schedule(self, key: K, at_ms: int, *, timer: str) -> None:
        """Set a timer for this key. Its handler is called when stream time reaches `at_ms`, or before the next record
        if that time has passed already. Setting it again replaces it. The key need not be in the map, and deleting
        the entry does not cancel the timer.

        Args:
            timer: the name of an `@app.timer("…")`.

        Raises:
            RecordError: the app has no such timer, or `at_ms` is not a time, or over ten years before stream time.
        """
        now_ms = self._store.clock.stream_time_ms
        self._scheduler(changes=True).set(self._store.name, self._keys.encode(key), at_ms, timer, now_ms)

    def cancel(self, key: K, *, timer: str) -> bool:
        """Cancel a timer of this key. Returns whether it was set. Raises as `schedule`."""
        return self._scheduler(changes=True).cancel(self._store.name, self._keys.encode(key), timer)

    def scheduled(self, key: K, *, timer: str) -> int | None:
        """Return when a timer of this key is due; None if it is not set. Raises as `schedule`."""
        return self._scheduler().at_ms(self._store.name, self._keys.encode(key), timer)

    def _scheduler(self, *, changes: bool = False) -> Scheduler:
        if changes and self._store.gate.owner != get_ident():
            refuse_write(self._store.gate, f"a timer of {self._keys.place} was set or cancelled")
        if self._store.scheduler is None:
            raise RecordError(
                "the app has no timers", hint='decorate a function (timer, state, out) with `@app.timer("…")`'
            )
        return self._store.scheduler

    def _peek(self, key: K) -> V | Missing:
        """Return the value, or ABSENT. Stores nothing."""
        if type(key) is not self._key_type:
            self._keys.check(key)
        value = self._live.get(key, ABSENT)
        if value is ABSENT:
            value = self._touch(key)
        return ABSENT if value is DELETED else value

    def _store_default(self, key: K) -> V:
        if self._default is None:
            raise MissingKey(self._values.place, key)
        value = self._values.unpack(self._default)
        if self._store.gate is OPEN or self._store.gate.owner == get_ident():
            self[key] = value  # else it is only looked at
        return value


@cache
def _engine_map(getter: Any) -> type[MapState[Any, Any]]:
    """Return the class of maps whose `[]` is the engine's. `getter`: the class that has it."""

    class EngineMap(getter, MapState[Any, Any]):  # type: ignore[misc]  # a class of Any: the engine may not be there
        """Reads by the engine, which calls `MapState.__getitem__` for anything unusual."""

    return EngineMap


class _Items(ItemsView[K, V]):
    """The inherited class reads values with `[]`, which stores defaults and counts as a touch."""

    _mapping: MapState[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping._store.pairs()  # noqa: SLF001 - of the same module

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2:
            return False
        value = self._mapping._peek(item[0])  # noqa: SLF001 - of the same module
        return value is not ABSENT and bool(value == item[1])


class _Values(ValuesView[V]):
    """Touches nothing, as `_Items`."""

    _mapping: MapState[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.items())

    def __contains__(self, value: object) -> bool:
        return any(value is each or value == each for each in self)


class _ExpiringMap(MapState[K, V]):
    """Tells its store of each touch."""

    _store: ExpiringStore[K, V]

    def __getitem__(self, key: K) -> V:
        value = super().__getitem__(key)
        self._store.refresh(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self._store.refresh(key)

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self._store.forget(key)

    def setdefault(self, key: K, default: Any = None) -> Any:
        value = super().setdefault(key, default)
        self._store.refresh(key)
        return value


class _ReadRefreshedMap(_ExpiringMap[K, V]):
    """A map in which what is read stays as well."""

    def get(self, key: K, default: Any = None) -> Any:
        value = self._peek(key)
        if value is ABSENT:
            return default
        self._store.refresh(key)
        return value

"""Windows in a store: one entry for each key and window, and a timer that closes it. Pure."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args, overload

import msgspec

from snapreplay.app.out import Out
from snapreplay.app.record import Record
from snapreplay.app.timer import Timer
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.map import MapState
from snapreplay.state.stores import maps_of
from snapreplay.times import suspected_unit

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
S = TypeVar("S")

_NOTHING: Any = object()


class Window(NamedTuple):
    """Milliseconds since the epoch, half-open: `end_ms` is not in it."""

    start_ms: int
    end_ms: int


def hopping(at_ms: int, size_ms: int, every_ms: int) -> list[Window]:
    """Return the windows that `at_ms` lies in, the oldest first; one begins at each multiple of `every_ms`."""
    last_ms = at_ms - at_ms % every_ms
    first_ms = last_ms - (size_ms - 1 - at_ms % every_ms) // every_ms * every_ms
    return [Window(start, start + size_ms) for start in range(first_ms, last_ms + 1, every_ms)]


def check_durations(least_ms: int = 1, **durations_ms: int) -> None:
    """Raise UsageError if one is not a number of milliseconds, or below the least."""
    for name, duration_ms in durations_ms.items():
        if type(duration_ms) is not int or duration_ms < least_ms:
            raise UsageError(f"{name}={duration_ms!r} is not a number of milliseconds from {least_ms} on")


class Closed(msgspec.Struct, Generic[K, A], frozen=True):
    """A closed window, to which no more records are added.

    Attributes:
        key: of its records.
        start_ms, end_ms: milliseconds since the epoch, half-open.
        value: the aggregate.
    """

    key: K
    start_ms: int
    end_ms: int
    value: A


WindowHandler = Callable[[Closed[K, A], S, Out], None]


@dataclass(eq=False, repr=False)
class _Windowed(Generic[K, A, S]):
    """A store, and a timer of the same name as the windows or sessions, which closes an entry of the store."""

    name: str
    grace_ms: int
    store: str
    _late: Topic[Any, Any] | None
    _closed: WindowHandler[K, A, S]

    _kind: ClassVar[str]
    _is_ordered: ClassVar[bool] = False

    def close(self, timer: Timer[tuple[K, int]], state: S, out: Out) -> None:
        value = store_in(state, self.store).pop(timer.key, _NOTHING)
        if value is not _NOTHING:
            self._closed(Closed(*timer.key, self._end_ms(timer), value), state, out)

    @abstractmethod
    def _end_ms(self, timer: Timer[tuple[K, int]]) -> int:
        """Return the end of the window that a timer closes."""

    def check(self, state: object) -> None:
        """Raise UsageError if the state has no store for it."""
        check_store(str(self), state, self.store, "tuple[str, int]", is_ordered=self._is_ordered)

    def _note_late(self, record: Record[Any, Any], out: Out) -> None:
        note_late(self.name, self._late, record, out)

    def __repr__(self) -> str:
        return f"{self._kind} {self.name}"


@dataclass(eq=False, repr=False)
class Windows(_Windowed[K, A, S]):
    """The windows of an app under one name; made by `App.window`.

    The store has an entry (key, start) → aggregate for each open window. A timer of this name, `grace_ms` after the
    window's end, calls the decorated function and deletes the entry.
    """

    _size_ms: int
    _every_ms: int

    _kind = "window"

    @overload
    def of(self, record: Record[K, Any], state: S, out: Out) -> list[tuple[K, int]]: ...
    @overload
    def of(self, record: Record[Any, Any], state: S, out: Out, *, key: K) -> list[tuple[K, int]]: ...
    def of(self, record: Record[Any, Any], state: S, out: Out, *, key: Any = None) -> list[tuple[Any, int]]:
        """Return the keys of the open windows that contain the record, (key, start), oldest first. Change their
        entries in the store.

        Closed windows are omitted; then the record counts as late, and goes to the output for late records.

        Args:
            key: by default the key of the record.

        Raises:
            RecordError: neither this record nor an earlier one has a timestamp.
        """
        key = record.key if key is None else key
        kept, found, is_late = store_in(state, self.store), [], False
        for window in hopping(time_of(record), self._size_ms, self._every_ms):
            closes_ms = window.end_ms + self.grace_ms
            if closes_ms <= kept.stream_time_ms:
                is_late = True
                continue
            entry = (key, window.start_ms)
            if entry not in kept:  # else its timer is set
                kept.schedule(entry, closes_ms, timer=self.name)
            found.append(entry)
        if is_late:
            self._note_late(record, out)
        return found

    def _end_ms(self, timer: Timer[tuple[K, int]]) -> int:
        return timer.key[1] + self._size_ms


@dataclass(eq=False, repr=False)
class Sessions(_Windowed[K, A, S]):
    """The sessions of an app under one name; made by `App.session`.

    An ordered store has an entry (key, start) → aggregate for each open session. Its timer is set to `gap_ms` after
    its last record, plus `grace_ms`.
    """

    _gap_ms: int
    _merge: Callable[[Any, Any], Any]

    _kind, _is_ordered = "session", True

    @overload
    def of(self, record: Record[K, Any], state: S, out: Out) -> list[tuple[K, int]]: ...
    @overload
    def of(self, record: Record[Any, Any], state: S, out: Out, *, key: K) -> list[tuple[K, int]]: ...
    def of(self, record: Record[Any, Any], state: S, out: Out, *, key: Any = None) -> list[tuple[Any, int]]:
        """Return a list with the key of the record's session, (key, start). Change the entry of this key in the
        store.

        Sessions that the record connects become one, with the earliest start; their aggregates are merged, earlier
        ones first. The list is empty if the record is late: it is near no open session, and a session for it would
        already be closed.

        Args:
            key: by default the key of the record.

        Raises:
            RecordError: neither this record nor an earlier one has a timestamp.
        """
        at_ms, key = time_of(record), record.key if key is None else key
        kept = store_in(state, self.store)
        end_ms = at_ms + self._gap_ms
        joined: list[tuple[Any, Any]] = []
        for entry, value in kept.range(start=(key,), end=(key, end_ms), reverse=True):
            session = self._session(kept, entry)
            if session.end_ms <= at_ms:
                break
            joined.append((entry, value))
            end_ms = max(end_ms, session.end_ms)
        if not joined and end_ms + self.grace_ms <= kept.stream_time_ms:
            self._note_late(record, out)
            return []
        start_ms = min(at_ms, joined[-1][0][1]) if joined else at_ms
        entry = (key, start_ms)
        if len(joined) > 1 or (joined and joined[0][0] != entry):
            for old, _ in joined:
                del kept[old]
                kept.cancel(old, timer=self.name)
            kept[entry] = functools.reduce(self._merge, [value for _, value in reversed(joined)])
        kept.schedule(entry, end_ms + self.grace_ms, timer=self.name)
        return [entry]

    def _session(self, kept: MapState[Any, Any], entry: tuple[Any, int]) -> Window:
        """Return the session of an entry. With another grace than its timer was set with, it has at least one gap."""
        closes_ms = kept.scheduled(entry, timer=self.name) or 0
        return Window(entry[1], max(closes_ms - self.grace_ms, entry[1] + self._gap_ms))

    def _end_ms(self, timer: Timer[tuple[K, int]]) -> int:
        return max(timer.at_ms - self.grace_ms, timer.key[1] + self._gap_ms)


def in_place_of(function: Callable[..., Any], called: Callable[[Any, Any, Out], None]) -> Callable[..., None]:
    """Return a handler that messages and the version of the app take for the author's function."""

    @functools.wraps(function)
    def handler(record_or_timer: Any, state: Any, out: Out) -> None:
        called(record_or_timer, state, out)

    return handler


def note_late(name: str, late: Topic[Any, Any] | None, record: Record[Any, Any], out: Out) -> None:
    """Count a late record of a window or join, and send it to the topic for late records if there is one."""
    out.note_late(name)
    if late is not None:
        out.send(late, key=record.key, value=record.value, headers=record.headers)


def time_of(record: Record[Any, Any]) -> int:
    if record.timestamp_ms < 0:
        raise RecordError(
            "the record has no timestamp, nor has one before it: it belongs to no window",
            hint="let the producer set timestamps, or the broker: message.timestamp.type=LogAppendTime",
        )
    unit = suspected_unit(record.timestamp_ms)
    if unit.startswith("seconds"):
        raise RecordError(
            f"the timestamp {record.timestamp_ms} looks like {unit}, and timestamps are in milliseconds",
            hint="its producer must send milliseconds",
        )
    return record.timestamp_ms


def store_in(state: object, name: str) -> MapState[Any, Any]:
    """Return the store of this name; a state of one map is the store `default`."""
    found: MapState[Any, Any] = state if isinstance(state, MapState) else getattr(state, name)
    return found


def check_store(what: str, state: object, name: str, keys: str, *, is_ordered: bool = False) -> None:
    """Raise UsageError if the state has no such store, or one with other keys. `keys`: as they are declared; a `str`
    in them stands for any type."""
    stores = {each or DEFAULT_STORE: store for each, store in maps_of(state).items()}
    options = ", ordered=True" if is_ordered else ""
    hint = f"give the state one: `{name}=MapState({keys}, …{options})` in `Stores`; or name another one in store="
    kept = stores.get(name)
    if kept is None:
        raise UsageError(f"{what}: the state has no store {name!r}; it has {', '.join(stores) or 'none'}", hint=hint)
    parts = get_args(kept.__snapreplay_types__()[0])
    if keys != "str" and (len(parts) != keys.count(",") + 1 or any(each is not int for each in parts[1:])):
        raise UsageError(f"{what}: the keys of store {name!r} must be {keys}, with any type in place of str", hint=hint)
    if is_ordered and not kept.__snapreplay_store__().is_ordered:
        raise UsageError(f"{what}: store {name!r} must be ordered", hint=hint)

"""A difference between a replay and what was recorded, narrowed to a key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from snapreplay.app.batch import Applied
from snapreplay.counted import counted
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.contract import ShardSlice, StateChanges
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.keys import stored_key
from snapreplay.state.stamp import bare


def narrowed(
    increment: Increment, changes: Sequence[bytes], applied: Applied | None
) -> Callable[[], str]:
    """The first key whose value is another one, by the recorded changes."""

    def says() -> str:
        if increment.changes is None or applied is None:
            return "no changes were recorded to compare"
        recorded: dict[_Place, bytes | None] = {}
        for stores in check_changes(increment.changes, changes):
            recorded |= _by_place(stores)
        replayed = _by_place(applied.sealed.changes)
        keys = [k for k in {**recorded, **replayed} if _at(recorded, k) != _at(replayed, k)]
        if not keys:
            return "by the same changes of the state"
        place = store, key = keys[0]
        return (
            f"the state differs in {counted(len(keys), 'key')}, first {_shown(key)}{_of(store)}: recorded"
            f" {_value(_at(recorded, place))}, replayed {_value(_at(replayed, place))}"
        )

    return says


def narrowed_at_snapshot(
    batch: int,
    recorded: Iterable[tuple[str, ShardSlice]],
    replayed: Iterable[tuple[str, ShardSlice]],
) -> str:
    """The first key whose value is another one, by the entries of the next snapshot, of this batch. They are compared
    slice by slice, because the replayed state is in memory as well."""
    count, first = 0, None
    for each in _differences(recorded, _entries_by_place(replayed)):
        count += 1
        if first is None or each.place < first.place:
            first = each
    at = f"at the next snapshot, of batch {batch},"
    if first is None:
        return f"{at} the state is as recorded"
    store, key = first.place
    return (
        f"{at} the state differs in {counted(count, 'key')}, first {_shown(key)}{_of(store)}: recorded"
        f" {_entry(first.recorded)}, replayed {_entry(first.replayed)}"
    )


class _Differing(NamedTuple):
    place: _Place
    recorded: bytes | None
    replayed: bytes | None


def _differences(
    recorded: Iterable[tuple[str, ShardSlice]], replayed: dict[_Place, bytes]
) -> Iterator[_Differing]:
    """In no order. What was compared is taken out of `replayed`."""
    for store, one in recorded:
        for key, value in one.entries.items():
            ours = replayed.pop((store, key), None)
            if ours != value:
                yield _Differing((store, key), value, ours)
    for place, ours in replayed.items():
        yield _Differing(place, None, ours)


def _entries_by_place(slices: Iterable[tuple[str, ShardSlice]]) -> dict[_Place, bytes]:
    return {(store, key): value for store, one in slices for key, value in one.entries.items()}


def _entry(stored: bytes | None) -> str:
    return "absent" if stored is None else _value(stored)


def _of(store: str) -> str:
    return "" if store == DEFAULT_STORE else f" of store {store}"


_UNTOUCHED = b"\xc1"  # no MessagePack
_SHOWN_MAX = 200


_Place = tuple[str, bytes]
"""A store and a key in it."""


def _by_place(changes: StateChanges) -> dict[_Place, bytes | None]:
    return {(store, key): new for store, entries in changes.items() for key, new in entries.items()}


def _at(changes: Mapping[_Place, bytes | None], place: _Place) -> bytes | None:
    return changes.get(place, _UNTOUCHED)


def _value(stored: bytes | None) -> str:
    """Without the stamp of an entry that expires."""
    return _shown(None if stored is None else bare(stored))


def _shown(stored: bytes | None) -> str:
    if stored is None:
        return "deleted"
    if stored == _UNTOUCHED:
        return "not touched"
    try:
        text = repr(stored_key(stored))
    except (ValueError, RecursionError):
        text = repr(stored)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"

"""A difference between a replay and what was recorded, narrowed to a key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from snapreplay.app.batch import Applied
from snapreplay.counted import counted
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.loading import Nowhere
from snapreplay.state.contract import ShardSlice, StateChanges
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.keys import stored_key
from snapreplay.state.stamp import bare


def narrowed(
    increment: Increment, changes: Sequence[bytes], applied: Applied | None
) -> Callable[[], str]:
    """Find the first key whose value is another one, by the recorded changes."""

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


def narrowed_at_snapshot(batch: int, found: Differences) -> str:
    """Name the first key whose value is another one, by the entries of the next snapshot, of this batch."""
    first = found.first
    at = f"at the next snapshot, of batch {batch},"
    if first is None:
        return f"{at} the state is as recorded"
    store, key = first.place
    return (
        f"{at} the state differs in {counted(found.count, 'key')}, first {_shown(key)}{_of(store)}: recorded"
        f" {_entry(first.recorded)}, replayed {_entry(first.replayed)}"
    )


class _Differing(NamedTuple):
    place: _Place
    recorded: bytes | None
    replayed: bytes | None


class Differences(Nowhere):
    """The receiver of a snapshot that compares its entries slice by slice with those that a replay leads to: both are
    not in memory as a whole.

    Attributes:
        count: the keys that differ.
        first: the first of them.
    """

    def __init__(self, replayed: Iterable[tuple[str, ShardSlice]]) -> None:
        super().__init__()
        self.count = 0
        self.first: _Differing | None = None
        self._replayed = {
            (n, key): value for n, one in replayed for key, value in one.entries.items()
        }

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        """Compare some of the entries, and take them out of those that are left."""
        for one in slices:
            for key, value in one.entries.items():
                self._compare((store, key), value, self._replayed.pop((store, key), None))

    def loaded(self) -> None:
        """Count what the snapshot lacks."""
        for place, ours in self._replayed.items():
            self._compare(place, None, ours)

    def _compare(self, place: _Place, recorded: bytes | None, replayed: bytes | None) -> None:
        if recorded != replayed:
            self.count += 1
            if self.first is None or place < self.first.place:
                self.first = _Differing(place, recorded, replayed)


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
    """Show a value without the stamp of an entry that expires."""
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

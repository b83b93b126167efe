"""A difference between a replay and what was recorded, narrowed to a key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from snapreplay.app.batch import Applied
from snapreplay.counted import counted
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.loading import Nowhere
from snapreplay.state.contract import ShardSlice, StateChanges
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.keys import stored_key
from snapreplay.state.stamp import bare


def narrowed(increment: Increment, changes: Sequence[bytes], applied: Applied | None) -> Callable[[], str]:
    """Find the first key whose value is another one, by the recorded changes."""

    def says() -> str:
        if increment.changes is None or applied is None:
            return "no changes were recorded to compare"
        recorded: _Values = {}
        for stores in check_changes(increment.changes, changes):
            recorded |= _by_place(stores)
        replayed = _by_place(applied.sealed.changes)
        places = [
            each
            for each in {**recorded, **replayed}
            if recorded.get(each, _UNTOUCHED) != replayed.get(each, _UNTOUCHED)
        ]
        if not places:
            return "by the same changes of the state"
        first = places[0]
        one, other = (values.get(first, _UNTOUCHED) for values in (recorded, replayed))
        return _differs(len(places), first, one, other, "deleted")

    return says


class Differences(Nowhere):
    """The receiver of a snapshot that compares its entries slice by slice with those that a replay leads to: both are
    not in memory as a whole."""

    def __init__(self, replayed: Iterable[tuple[str, ShardSlice]]) -> None:
        super().__init__()
        self._count = 0
        self._first: tuple[_Place, bytes | None, bytes | None] | None = None
        self._replayed = {(n, key): value for n, one in replayed for key, value in one.entries.items()}

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        for one in slices:
            for key, value in one.entries.items():
                self._compare((store, key), value, self._replayed.pop((store, key), None))

    def loaded(self) -> None:
        for place, ours in self._replayed.items():
            self._compare(place, None, ours)

    def says(self, batch: int) -> str:
        """Name the first key whose value is another one, by the entries of the next snapshot, of this batch."""
        found = "the state is as recorded" if self._first is None else _differs(self._count, *self._first, "absent")
        return f"at the next snapshot, of batch {batch}, {found}"

    def _compare(self, place: _Place, recorded: bytes | None, replayed: bytes | None) -> None:
        if recorded != replayed:
            self._count += 1
            if self._first is None or place < self._first[0]:
                self._first = place, recorded, replayed


_UNTOUCHED = b"\xc1"  # no MessagePack
_SHOWN_MAX = 200

_Place = tuple[str, bytes]
"""A store and a key in it."""
_Values = dict[_Place, bytes | None]


def _differs(count: int, first: _Place, recorded: bytes | None, replayed: bytes | None, nothing: str) -> str:
    """Say where two sides differ; `nothing`: how None is called."""
    store, key = first
    of = "" if store == DEFAULT_STORE else f" of store {store}"
    one, other = (nothing if each is None else _shown(bare(each)) for each in (recorded, replayed))
    return f"the state differs in {counted(count, 'key')}, first {_shown(key)}{of}: recorded {one}, replayed {other}"


def _by_place(changes: StateChanges) -> _Values:
    return {(store, key): new for store, entries in changes.items() for key, new in entries.items()}


def _shown(stored: bytes) -> str:
    if stored == _UNTOUCHED:
        return "not touched"
    try:
        text = repr(stored_key(stored))
    except (ValueError, RecursionError):
        text = repr(stored)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"

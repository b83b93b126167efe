"""Gives the engine the store of what a user's state factory made. Pure."""

from __future__ import annotations

from snapreplay.errors import UsageError
from snapreplay.state.contract import State, Store
from snapreplay.state.map import MapState
from snapreplay.state.objects import ObjectStore
from snapreplay.state.stores import Stores


def store_of(state: object) -> Store:
    """Returns the store behind a `MapState` or `Stores`, or a new `ObjectStore` around any other `State`.

    Raises:
        UsageError: none of them, or a class instead of an object.
    """
    if isinstance(state, MapState | Stores):
        store: Store = state.__snapreplay_store__()
        return store
    if isinstance(state, State) and not isinstance(state, type):
        return ObjectStore(state)
    missing = [name for name in ("snapshot", "restore") if not hasattr(state, name)]
    what = f"the class {state.__name__}" if isinstance(state, type) else f"{state!r:.80}"
    raise UsageError(
        f"{what} cannot be the state of a partition"
        + (f": it has no {' and no '.join(missing)}" if missing else ""),
        hint="pass as state= a function that returns a new MapState(str, ...), "
        "or an object with snapshot() and restore()",
    )

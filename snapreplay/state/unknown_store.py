"""The error for stored entries that the app has no store for. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from snapreplay.counted import counted
from snapreplay.errors import StopError
from snapreplay.state.digest import DEFAULT_STORE

TIMERS_STORE = "_timers"
"""The timers of keys."""
PERIODS_STORE = "_periods"
"""Of each periodic timer, when it is due next."""
RESERVED = (PERIODS_STORE, TIMERS_STORE)
"""Stores that an app has with its timers. Other names begin with a letter."""


class UnknownStore(StopError):
    """There are entries in a store that the app neither has nor retires: it was renamed, or forgotten."""


def unknown_store(
    store: str, *known: str, entry_count: int | None = None, declared: Iterable[str] = ()
) -> UnknownStore:
    """Return the error for `store`.

    Args:
        known: the stores that the app has, those of its timers too.
        entry_count: how many entries are in it; None: not known yet.
        declared: names that were retired.
    """
    entries = "entries" if entry_count is None else counted(entry_count, "entry")
    own = [name for name in known if name not in RESERVED]
    named = own != [DEFAULT_STORE]
    has = f"it has {', '.join(own)}" if named else "its state has no named stores"
    kept = "" if named else f"{DEFAULT_STORE}=MapState(…), "
    reserved = RESERVED if store in RESERVED else ()
    retired = "".join(f'"{name}", ' for name in sorted({*declared, store, *reserved}))
    again = (
        f"If the store was renamed, give it its name {store!r} again:"
        f" `state=lambda: Stores({kept}{store}=MapState(…), …)`"
    )
    if reserved:
        again = "It holds the timers that the app had: keep a handler, `@app.timer(…)`, until they have fired"
    return UnknownStore(
        f"the log has {entries} in the store {store!r}, which this app neither has nor retires: {has}",
        hint=f"nothing is lost. {again}. If it is not needed any more, say so, and its entries"
        f" are deleted with the next batch: `Stores({kept}…, retired=({retired.strip()}))`",
        store=store,
        entry_count=entry_count,
    )

"""The parts of a state that the engine passes on: sealed batches, and slices of snapshots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add

import msgspec

from snapreplay.counted import counted
from snapreplay.errors import StopError
from snapreplay.state.digest import DEFAULT_STORE, Digest

StateChanges = Mapping[str, Mapping[bytes, bytes | None]]
"""Name of the store → encoded key → encoded value, None for a tombstone; in order of first touch."""


ENTRY_BYTES_MAX = 800_000
"""Encoded key and value together: one entry always fits into one record of 900,000 bytes."""


class Sealed(msgspec.Struct, frozen=True):
    """A batch's effect on a store.

    Attributes:
        changes: only what differs from before the batch.
        digest: of the whole state after the batch.
        store_digests: see `recorded_digests`.
        cleared: names of the stores whose entries were all deleted before these changes.
    """

    changes: dict[str, dict[bytes, bytes | None]]
    digest: Digest
    store_digests: dict[str, Digest] = {}
    cleared: list[str] = []


class ShardSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A whole shard, or a part of a large one, with the digest sums of exactly these entries."""

    index: int
    digest_a: int
    digest_b: int
    entries: dict[bytes, bytes]


class StoreSize(msgspec.Struct, frozen=True):
    """The size of one store of a state: key and value bytes as stored."""

    name: str
    entries: int
    size_bytes: int


def largest_entry_bytes(entries: Mapping[bytes, bytes | None]) -> int:
    """Return encoded key and value together, in bytes; 0 without entries. A tombstone has only its key."""
    try:  # of every batch: no Python code per entry
        return max(map(add, map(len, entries), map(len, entries.values())), default=0)  # type: ignore[arg-type]
    except TypeError:  # there is a tombstone
        return max(len(key) + len(value or b"") for key, value in entries.items())


TIMERS_STORE = "_timers"
"""The timers of keys."""
PERIODS_STORE = "_periods"
"""Of each periodic timer, when it is due next."""
CALLS_STORE = "_calls"
"""The calls to the outside that have no answer yet."""
RESERVED = (CALLS_STORE, PERIODS_STORE, TIMERS_STORE)
"""Stores that an app has with its timers and its calls. Other names begin with a letter."""


class UnknownStore(StopError):
    """The state has entries of a store that the app neither declares nor retires: it was renamed or forgotten.

    Safe: The partition stops before this code writes anything, and the entries stay as they are. Entries that `retired`
    has deleted do not come back.
    """


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
    of_timers = (PERIODS_STORE, TIMERS_STORE)
    reserved = of_timers if store in of_timers else ()
    retired = "".join(f'"{name}", ' for name in sorted({*declared, store, *reserved}))
    again = (
        f"If the store was renamed, give it its name {store!r} again:"
        f" `state=lambda: Stores({kept}{store}=MapState(…), …)`"
    )
    if reserved:
        again = "It has the timers that the app had: keep a handler, `@app.timer(…)`, until they have fired"
    if store == CALLS_STORE:
        again = "It has the calls that have no answer yet: keep `@app.call(…)` until they have one"
    return UnknownStore(
        f"the log has {entries} in the store {store!r}, which this app neither has nor retires: {has}",
        hint=f"nothing is lost. {again}. If it is no longer needed, retire it, and the next"
        f" batch deletes its entries: `Stores({kept}…, retired=({retired.strip()}))`",
        store=store,
        entry_count=entry_count,
    )

"""A whole state as slices, for those who keep it in memory or send it on. Pure."""

from __future__ import annotations

import msgspec

from snapreplay.state.contract import ShardSlice, Store
from snapreplay.state.digest import Digest, digest_of
from snapreplay.state.steps import all_of

_SLICE_BYTES = 1 << 20

Slices = list[tuple[str, ShardSlice]]
"""Of a whole state, each with the name of its store."""


def load_slices(store: Store, slices: Slices, stream_time_ms: int) -> None:
    """Make the store what `slices_of` was given, of a store with as many shards."""
    store.clear(store.shard_count)
    for name, one in slices:
        store.load((one,), name)
    store.loaded()
    store.stream_time_ms = stream_time_ms


def slices_of(store: Store) -> Slices:
    """Return all entries of a store in which nothing is uncommitted, with the names of their stores."""
    cursor = store.mark()
    found: Slices = []
    try:
        while slices := all_of(cursor.slicing(_SLICE_BYTES)):
            # The entries of a slice are the store's own until its next write.
            found += [
                (cursor.store, msgspec.structs.replace(one, entries=dict(one.entries)))
                for one in slices
            ]
    finally:
        cursor.release()
    return found


def digest_in(store: Store) -> Digest:
    """Return the digest of a store in which nothing is uncommitted, computed if it keeps none."""
    if store.digest is not None:
        return store.digest
    return digest_of(entry for _, one in slices_of(store) for entry in one.entries.items())

"""The part of our two topics that is still needed. Pure.

Only snapshots that the last committed increment points to count. Other manifests, however new and
whole, neither keep nor free anything. Compute the floors from the log directly before each trim.
"""

from __future__ import annotations

from typing import NamedTuple

from snapreplay.snapshots.format.records import Increment


class Floors(NamedTuple):
    """Everything below may be deleted, in the increments topic and in the snapshots topic."""

    increments_offset: int
    snapshots_offset: int


def retention_floors(last: Increment, last_offset: int, snapshots_kept: int) -> Floors | None:
    """Return the floors that keep the newest `snapshots_kept` (at least 1) snapshots; None: no trim.

    `last_offset` is that of `last` in the increments topic. The increments floor is the increment of
    the oldest kept snapshot's batch, which is kept, and always below `last_offset`. The snapshots
    floor is the lowest chunk of all kept snapshots.
    """
    kept = last.pointers[: max(1, snapshots_kept)]
    if not kept:
        return None
    oldest_offset = min(pointer.increment_offset for pointer in kept)
    return Floors(
        increments_offset=max(0, min(oldest_offset, last_offset - 1)),
        snapshots_offset=min(min(p.first_chunk_offset, p.manifest_offset) for p in kept),
    )

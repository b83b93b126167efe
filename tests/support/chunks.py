"""A chunk as a restore reads it, in one piece."""

from __future__ import annotations

from snapreplay.snapshots.format.chunks import open_chunk, sums_of, unpacking
from snapreplay.snapshots.format.records import Chunk, ChunkRef
from snapreplay.state.digest import DEFAULT_STORE, EMPTY, Digest


def read_chunk(
    value: bytes, ref: ChunkRef, snapshot_id: str, *, verify_sums: bool = False
) -> Chunk:
    """Return the chunk that the manifest's `ref` names. Raises as `unpacking`."""
    body = open_chunk(value, ref, snapshot_id)
    found = [each for each in unpacking(body, ref, snapshot_id, verify_sums=verify_sums) if each]
    store = found[0][0] if found else DEFAULT_STORE
    return Chunk(snapshot_id, ref.sequence, store, [part for _, part in found])


def stated_digest(chunk: Chunk) -> Digest:
    """Return the digest of the entries in a chunk by the sums that its slices state."""
    total = EMPTY
    for part in chunk.slices:
        total = total.plus(sums_of(part))
    return total

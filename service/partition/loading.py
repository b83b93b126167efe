"""Making the state that of a full snapshot: manifest, chunks, each checked before use, digest last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from snapreplay.service.partition.decoding import decode_as
from snapreplay.service.ports import OffsetBeyondEnd, OffsetTrimmed, Reader, TopicPartition
from snapreplay.snapshots.errors import DamagedError, RebuildError, SnapreplayError, StopError
from snapreplay.snapshots.format.chunks import read_chunk
from snapreplay.snapshots.format.records import Chunk, ChunkRef, Manifest, Pointer
from snapreplay.snapshots.program.record import InputRecord
from snapreplay.snapshots.state.contract import Store
from snapreplay.snapshots.state.digest import EMPTY, MASK, Digest

OnBytes = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all)."""


class SnapshotMissing(RebuildError):
    """The manifest, or a chunk it names, is not where it was acknowledged (trimmed, or topic re-created)."""


class SchemaDiffers(StopError):
    """The snapshot was written under another state schema version."""


async def load_manifest(reader: Reader, log: TopicPartition, pointer: Pointer) -> Manifest:
    """The manifest a committed increment points to.

    Raises:
        SnapshotMissing, DamagedError: plan without this snapshot.
    """
    try:
        record = await reader.read_at(log, pointer.manifest_offset)
    except (OffsetTrimmed, OffsetBeyondEnd) as error:
        raise _missing(error) from error
    if record is None:
        raise SnapshotMissing(f"{log} holds nothing at manifest offset {pointer.manifest_offset}")
    manifest = decode_as(Manifest, record.value or b"", log, pointer.manifest_offset)
    if (manifest.snapshot_id, manifest.batch) != (pointer.snapshot_id, pointer.batch):
        raise DamagedError(
            f"manifest at {log} offset {pointer.manifest_offset} is of snapshot"
            f" {manifest.snapshot_id} batch {manifest.batch}, the pointer names {pointer.snapshot_id}"
            f" batch {pointer.batch}"
        )
    if manifest.digest != pointer.digest:
        raise DamagedError(
            f"snapshot {manifest.snapshot_id}: the manifest's digest {manifest.digest} is not the"
            f" pointer's {pointer.digest}"
        )
    return manifest


async def load_state(
    reader: Reader,
    log: TopicPartition,
    manifest: Manifest,
    schema_version: int,
    store: Store,
    on_bytes: OnBytes,
) -> None:
    """Make `store` exactly the snapshot's state.

    Raises:
        SnapshotMissing, DamagedError: plan without this snapshot; the store holds a part of it.
        SchemaDiffers: the app's state schema is another one.
    """
    if manifest.schema_version != schema_version:
        raise SchemaDiffers(
            f"snapshot {manifest.snapshot_id} holds state schema {manifest.schema_version},"
            f" the app's is {schema_version}",
            hint="start the app version that wrote it, or bring its schema_version back",
        )
    store.clear(manifest.shard_count)
    sums = await _load_chunks(reader, log, manifest, store, on_bytes)
    if sums != manifest.entries_digest:
        raise DamagedError(
            f"snapshot {manifest.snapshot_id} adds up to digest {sums}, its manifest says"
            f" {manifest.entries_digest}"
        )
    store.loaded()
    store.stream_time_ms = manifest.stream_time_ms


def _missing(error: SnapreplayError) -> SnapshotMissing:
    missing = SnapshotMissing(error.message)
    missing.facts = error.facts
    return missing


async def _load_chunks(
    reader: Reader, log: TopicPartition, manifest: Manifest, store: Store, on_bytes: OnBytes
) -> Digest:
    """What the slices add up to. Where no increment proves the state, the entries themselves are hashed again."""
    unproven = manifest.digest is None
    sums = EMPTY
    missing = {ref.offset: ref for ref in manifest.chunks}
    total, loaded = sum(ref.size_bytes for ref in manifest.chunks), 0
    on_bytes(0, total)
    try:
        async for records in reader.read(log, *_chunk_range(manifest)):
            for record in records:
                ref = missing.pop(record.offset, None)
                if ref is not None:
                    chunk = await _chunk(record, ref, manifest.snapshot_id, verify_sums=unproven)
                    sums = _added(sums, chunk)
                    store.load(chunk.slices)
                    loaded += ref.size_bytes
                    on_bytes(loaded, total)
    except (OffsetTrimmed, OffsetBeyondEnd) as error:
        raise _missing(error) from error
    if missing:
        raise SnapshotMissing(
            f"snapshot {manifest.snapshot_id} lacks {len(missing)} of {len(manifest.chunks)} chunks in"
            f" {log}, the first at offset {min(missing)}"
        )
    return sums


def _chunk_range(manifest: Manifest) -> tuple[int, int]:
    """Other writers' records may lie between the chunks: they are selected by offset, not by adjacency."""
    offsets = [ref.offset for ref in manifest.chunks]
    return (min(offsets), max(offsets) + 1) if offsets else (0, 0)


async def _chunk(
    record: InputRecord, ref: ChunkRef, snapshot_id: str, *, verify_sums: bool
) -> Chunk:
    """Checked and decoded in a thread: decompression and checksums let other tasks run."""
    value = record.value or b""
    return await asyncio.to_thread(read_chunk, value, ref, snapshot_id, verify_sums=verify_sums)


def _added(sums: Digest, chunk: Chunk) -> Digest:
    return Digest(
        sums.count + sum(len(part.entries) for part in chunk.slices),
        (sums.a + sum(part.digest_a for part in chunk.slices)) & MASK,
        (sums.b + sum(part.digest_b for part in chunk.slices)) & MASK,
    )

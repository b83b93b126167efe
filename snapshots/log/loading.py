"""Loads a full snapshot: the manifest, then its chunks, each checked before use, and last the sums. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, RebuildError
from snapreplay.snapshots.format.chunks import open_chunk, reading_back, sums_of, unpacking
from snapreplay.snapshots.format.records import ChunkRef, Manifest, Pointer
from snapreplay.snapshots.log.reading import Reading, Source, TopicPartition, decode_as
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.steps import Steps


class Sink(Protocol):
    """The receiver of a snapshot: a `Store`, or something that only checks it."""

    stream_time_ms: int

    def clear(self, shard_count: int = ...) -> None:
        """Hold nothing."""

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        """Take some of the entries."""


class NullSink:
    """Takes a snapshot in and keeps nothing: everything of it is read and checked."""

    def __init__(self) -> None:
        self.stream_time_ms = -1

    def clear(self, shard_count: int = 0) -> None: ...

    def load(self, slices: Iterable[ShardSlice], store: str) -> None: ...


OnSlice = Callable[[str, ShardSlice], None]
"""Called with the store and the slice."""


class SnapshotMissing(RebuildError):
    """The manifest, or a chunk of it, is not at its offset: it was trimmed, or the topic was created again."""


def named_manifest(record: InputRecord, log: TopicPartition, pointer: Pointer) -> Manifest:
    """Return the manifest in the record that a committed increment points to.

    Raises:
        DamagedError: `pointer` names another one.
        UnknownFormatError: a newer version wrote it.
    """
    manifest = decode_as(Manifest, record.value or b"", log, record.offset)
    if (manifest.snapshot_id, manifest.batch) != (pointer.snapshot_id, pointer.batch):
        raise DamagedError(
            f"manifest at {log} offset {pointer.manifest_offset} is of snapshot"
            f" {manifest.snapshot_id} batch {manifest.batch}, but the pointer names {pointer.snapshot_id}"
            f" batch {pointer.batch}"
        )
    if manifest.increment_offset != pointer.increment_offset or not all(
        pointer.first_chunk_offset <= ref.offset < pointer.manifest_offset for ref in manifest.chunks
    ):
        raise DamagedError(f"snapshot {manifest.snapshot_id}: the manifest names other offsets than its pointer")
    if manifest.digest != pointer.digest:
        raise DamagedError(
            f"snapshot {manifest.snapshot_id}: the manifest's digest {manifest.digest} is not the"
            f" pointer's {pointer.digest}"
        )
    return manifest


def loading(
    log: str,
    manifest: Manifest,
    sink: Sink,
    *,
    verify_sums: bool,
    on_slice: OnSlice | None = None,
    on_chunk: Callable[[int], None] | None = None,
) -> Reading[None]:
    """Make `sink` exactly the snapshot's state.

    Args:
        log: the snapshots topic.
        verify_sums: hash every entry, because no owner vouches for the sums, or nothing else proves the state.

    Raises:
        SnapshotMissing, DamagedError: `sink` holds a part of it.
        UnknownFormatError: a newer version wrote a chunk.
    """
    sink.clear(manifest.shard_count)
    sums, snapshot_id = EMPTY, manifest.snapshot_id

    def load(ref: ChunkRef, body: bytes) -> Steps[None]:
        nonlocal sums
        for found in unpacking(body, ref, snapshot_id, verify_sums=verify_sums):
            if found is not None:
                store, part = found
                sums = sums.plus(sums_of(part).in_store(store))
                if on_slice is not None:
                    on_slice(store, part)
                sink.load((part,), store)
            yield
        if on_chunk is not None:
            on_chunk(ref.size_bytes)

    yield from _opening(log, manifest.chunks, snapshot_id, load)
    if sums != manifest.entries_digest:
        raise DamagedError(
            f"snapshot {snapshot_id} adds up to digest {sums}, but its manifest says {manifest.entries_digest}"
        )
    sink.stream_time_ms = manifest.stream_time_ms


def hashing(log: str, chunks: Sequence[ChunkRef], snapshot_id: str, shard_count: int) -> Reading[dict[str, Digest]]:
    """Return the digest of the entries in these chunks by store, each entry hashed, without trusting the sums in
    the chunks. Raises SnapshotMissing, DamagedError, UnknownFormatError."""
    found: dict[str, Digest] = {}

    def add(ref: ChunkRef, body: bytes) -> Steps[None]:
        store, digest = yield from reading_back(body, ref, snapshot_id, shard_count)
        if not digest.count:
            # No writer makes one, and no sum shows it.
            raise DamagedError(f"chunk {ref.sequence} of snapshot {snapshot_id} has no entries")
        found[store] = found.get(store, EMPTY).plus(digest)

    yield from _opening(log, chunks, snapshot_id, add)
    return found


def _opening(
    log: str, chunks: Sequence[ChunkRef], snapshot_id: str, take: Callable[[ChunkRef, bytes], Steps[None]]
) -> Reading[None]:
    """Let `take` have the body of each chunk. Other writers' records may lie between them: they are selected by offset,
    not by adjacency. Raises SnapshotMissing."""
    missing = {ref.offset: ref for ref in chunks}
    source = Source(log, min(missing, default=0), max(missing, default=-1) + 1)
    while missing and (records := (yield source)):
        for record in records:
            ref = missing.pop(record.offset, None)
            if ref is not None:
                # Checksum and zstd release the interpreter's lock, so a thread may do it.
                body = yield partial(open_chunk, record.value or b"", ref, snapshot_id)
                yield from take(ref, body)
    if missing:
        raise SnapshotMissing(
            f"snapshot {snapshot_id} lacks {len(missing)} of {counted(len(chunks), 'chunk')} in {log}, the first at"
            f" offset {min(missing)}"
        )

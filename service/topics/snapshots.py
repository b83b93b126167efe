"""Loads a full snapshot: manifest, then chunks, each checked before use, and last the digest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, RebuildError, SnapreplayError
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.refusals import schema_differs
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import Pauses
from snapreplay.service.topics.decode import decode_as
from snapreplay.service.topics.stale_leader import OnWaiting, Patience
from snapreplay.snapshots.format.chunks import open_chunk, sums_of, unpacking
from snapreplay.snapshots.format.records import ChunkRef, Manifest, Pointer
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.sizes import larger_of, largest_entry_bytes


class Sink(Protocol):
    """What takes a snapshot in: a `Store`, or something that only checks it."""

    stream_time_ms: int

    def clear(self, shard_count: int = ...) -> None:
        """Hold nothing."""

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        """Some of the entries."""

    def loaded(self) -> None:
        """All were given."""


OnBytes = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all)."""


class SnapshotMissing(RebuildError):
    """The manifest, or a chunk that it names, is not where it was acknowledged (trimmed, or topic created again)."""


async def reader_reaching(context: Context, pointer: Pointer, on_waiting: OnWaiting) -> Reader:
    """A reader of the snapshots topic that sees beyond the manifest. If the log seems too short, new clients ask first:
    a stale leader must not cost a fallback. If all brokers agree, the log is shorter than it was.

    Args:
        on_waiting: hears what is waited for, at every try.
    """
    patience, offset = Patience(), pointer.manifest_offset
    while True:
        reader = await context.cluster.reader(read_committed=False, large=True)
        try:
            end_offset = (await reader.bounds(context.snapshots)).end_offset
            if end_offset > offset or patience.is_over:
                return reader
            on_waiting(
                f"snapshot {pointer.snapshot_id} at offset {offset} of {context.snapshots} is not visible: the log ends"
                f" at {end_offset}; asking all brokers, {patience.left_seconds:.0f} s left"
            )
            await patience.ask_all(context.cluster, context.snapshots, offset + 1)
        except BaseException:
            await reader.close()
            raise
        await reader.close()
        await patience.pause()


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
        end_offset = (await reader.bounds(log)).end_offset
        shorter = end_offset <= pointer.manifest_offset
        raise SnapshotMissing(
            f"{log} holds nothing at manifest offset {pointer.manifest_offset}"
            + (f", it ends at {end_offset}: the log is shorter than it was" if shorter else "")
        )
    manifest = decode_as(Manifest, record.value or b"", log, pointer.manifest_offset)
    if (manifest.snapshot_id, manifest.batch) != (pointer.snapshot_id, pointer.batch):
        raise DamagedError(
            f"manifest at {log} offset {pointer.manifest_offset} is of snapshot"
            f" {manifest.snapshot_id} batch {manifest.batch}, but the pointer names {pointer.snapshot_id}"
            f" batch {pointer.batch}"
        )
    if manifest.increment_offset != pointer.increment_offset or not all(
        pointer.first_chunk_offset <= ref.offset < pointer.manifest_offset
        for ref in manifest.chunks
    ):
        raise DamagedError(
            f"snapshot {manifest.snapshot_id}: the manifest names other offsets than its pointer"
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
    store: Sink,
    on_bytes: OnBytes,
    *,
    verify_sums: bool = False,
) -> dict[str, int]:
    """Make `store` exactly the snapshot's state.

    `verify_sums`: hash every entry, because no owner vouches for the sums. Where no increment proves the state, this is
    always done.

    Returns:
        Store → bytes of its largest entry, encoded key and value.

    Raises:
        SnapshotMissing, DamagedError: plan without this snapshot; the store holds a part of it.
        SchemaDiffers: the app's state schema is another one.
    """
    if manifest.origin.schema_version != schema_version:
        what = f"snapshot {manifest.snapshot_id}"
        raise schema_differs(what, manifest.origin.schema_version, schema_version)
    store.clear(manifest.shard_count)
    verify_sums = verify_sums or manifest.digest is None
    sums, largest = await _load_chunks(
        reader, log, manifest, store, on_bytes, verify_sums=verify_sums
    )
    if sums != manifest.entries_digest:
        raise DamagedError(
            f"snapshot {manifest.snapshot_id} adds up to digest {sums}, but its manifest says"
            f" {manifest.entries_digest}"
        )
    store.loaded()
    store.stream_time_ms = manifest.stream_time_ms
    return largest


def _missing(error: SnapreplayError) -> SnapshotMissing:
    missing = SnapshotMissing(error.message)
    missing.facts = error.facts
    return missing


async def _load_chunks(
    reader: Reader,
    log: TopicPartition,
    manifest: Manifest,
    store: Sink,
    on_bytes: OnBytes,
    *,
    verify_sums: bool,
) -> tuple[Digest, dict[str, int]]:
    """What the slices add up to, and the bytes of the largest entry of each store."""
    sums = EMPTY
    largest: dict[str, int] = {}
    missing = {ref.offset: ref for ref in manifest.chunks}
    total, loaded = sum(ref.size_bytes for ref in manifest.chunks), 0
    on_bytes(0, total)
    try:
        async for records in reader.read(log, *chunk_range(manifest)):
            for record in records:
                ref = missing.pop(record.offset, None)
                if ref is not None:
                    async for store_name, part in _slices(
                        record, ref, manifest.snapshot_id, verify_sums=verify_sums
                    ):
                        sums = sums.plus(sums_of(part).in_store(store_name))
                        found = {store_name: largest_entry_bytes(part.entries)}
                        largest = larger_of(largest, found)
                        store.load((part,), store_name)
                    loaded += ref.size_bytes
                    on_bytes(loaded, total)
    except (OffsetTrimmed, OffsetBeyondEnd) as error:
        raise _missing(error) from error
    if missing:
        raise SnapshotMissing(
            f"snapshot {manifest.snapshot_id} lacks {len(missing)} of {counted(len(manifest.chunks), 'chunk')} in"
            f" {log}, the first at offset {min(missing)}"
        )
    return sums, largest


def chunk_range(manifest: Manifest) -> tuple[int, int]:
    """Other writers' records may lie between the chunks: they are selected by offset, not by adjacency."""
    offsets = [ref.offset for ref in manifest.chunks]
    return (min(offsets), max(offsets) + 1) if offsets else (0, 0)


async def _slices(
    record: InputRecord, ref: ChunkRef, snapshot_id: str, *, verify_sums: bool
) -> AsyncIterator[tuple[str, ShardSlice]]:
    """Checked in a thread, which releases the interpreter's lock; decoded in this loop, slice by slice."""
    body = await asyncio.to_thread(open_chunk, record.value or b"", ref, snapshot_id)
    pauses = Pauses()
    for found in unpacking(body, ref, snapshot_id, verify_sums=verify_sums):
        if found is not None:
            yield found
        await pauses.when_due()

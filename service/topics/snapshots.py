"""Finds manifests in the snapshots topic, and loads full snapshots: it may be trimmed, or the leader stale."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable

from snapreplay.errors import RebuildError, SnapreplayError, UnknownFormatError
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.refusals import SchemaDiffers, schema_differs
from snapreplay.service.core.search import windows
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import Read, run_cooperatively
from snapreplay.service.topics.reading import OnWaiting, Patience
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import Manifest, Pointer
from snapreplay.snapshots.log.loading import Sink, SnapshotMissing, hashing, loading, named_manifest
from snapreplay.snapshots.log.reading import Slice, Source, decode_as, is_ours
from snapreplay.state.contract import ShardSlice, UnknownStore, largest_entry_bytes
from snapreplay.state.digest import Digest

TAIL_OFFSETS_MAX = 16_384
"""How far back the newest manifest of an owner is looked for. Snapshots that were never finished may lie behind it: a
million keys are 20 to 200 records each."""


def manifest_in(value: bytes, log: TopicPartition, offset: int) -> Manifest | None:
    """Return the manifest, if it can be read; garbage that nothing points to is ignored."""
    try:
        if not is_ours(value, ()) or kind_of(value) is not RecordKind.MANIFEST:
            return None
        return decode_as(Manifest, value, log, offset)
    except SnapreplayError:
        return None


async def newest_first(reader: Reader, log: TopicPartition, bounds: Bounds) -> AsyncIterator[tuple[int, Manifest]]:
    """Yield the manifests within `bounds` with their offsets, by windows that grow backwards from the end."""
    for window in windows(bounds.end_offset, bounds.start_offset):
        found: list[tuple[int, Manifest]] = []
        async for records in reader.read(log, window.start_offset, window.end_offset):
            for record in records:
                manifest = manifest_in(record.value or b"", log, record.offset)
                if manifest is not None:
                    found.append((record.offset, manifest))
        for each in reversed(found):
            yield each


async def newest_of_owner(reader: Reader, log: TopicPartition, bounds: Bounds) -> Manifest | None:
    """Return the newest manifest in the tail that an owner wrote; a proposal says nothing about today's topics."""
    start_offset = max(bounds.start_offset, bounds.end_offset - TAIL_OFFSETS_MAX)
    async for _, manifest in newest_first(reader, log, Bounds(start_offset, bounds.end_offset)):
        if manifest.proposed_by is None:
            return manifest
    return None


UNUSABLE = (RebuildError, UnknownStore, SchemaDiffers, UnknownFormatError)
"""What is raised of a snapshot that cannot be used: an older one may lead to the same state."""

OnBytes = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all)."""


async def reader_reaching(context: Context, pointer: Pointer, on_waiting: OnWaiting) -> Reader:
    """Return a reader of the snapshots topic that sees beyond the manifest. If the log seems too short, new clients
    ask first: a stale leader must not cost a fallback. If all brokers agree, the log is shorter than before.

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
    """Load the manifest a committed increment points to.

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
            + (f", it ends at {end_offset}: the log is shorter than before" if shorter else "")
        )
    return named_manifest(record, log, pointer)


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

    `verify_sums`: hash every entry, because no owner vouches for the sums.

    Returns:
        Store → bytes of its largest entry, encoded key and value.

    Raises:
        SnapshotMissing, DamagedError: plan without this snapshot; the store holds a part of it.
        SchemaDiffers: the app's state schema is another one.
    """
    if manifest.origin.schema_version != schema_version:
        raise schema_differs(f"snapshot {manifest.snapshot_id}", manifest.origin.schema_version, schema_version)
    largest: dict[str, int] = {}
    loaded, total = 0, sum(ref.size_bytes for ref in manifest.chunks)

    def note_slice(store_name: str, part: ShardSlice) -> None:
        largest[store_name] = max(largest.get(store_name, 0), largest_entry_bytes(part.entries))

    def opened(size_bytes: int) -> None:
        nonlocal loaded
        loaded += size_bytes
        on_bytes(loaded, total)

    on_bytes(0, total)
    steps = loading(str(log), manifest, store, verify_sums=verify_sums, on_slice=note_slice, on_chunk=opened)
    await run_cooperatively(steps, _chunks_from(reader, log))
    return largest


async def hashed_digests(reader: Reader, log: TopicPartition, manifest: Manifest) -> dict[str, Digest]:
    """Return the digest of the entries by store; raises as `hashing`."""
    steps = hashing(str(log), manifest.chunks, manifest.snapshot_id, manifest.shard_count)
    return await run_cooperatively(steps, _chunks_from(reader, log))


def _chunks_from(reader: Reader, log: TopicPartition) -> Read:
    async def read(source: Source) -> AsyncGenerator[Slice, None]:
        try:
            async for records in reader.read(log, source.start_offset, source.end_offset):
                yield records
        except (OffsetTrimmed, OffsetBeyondEnd) as error:
            raise _missing(error) from error

    return read


def _missing(error: SnapreplayError) -> SnapshotMissing:
    missing = SnapshotMissing(error.message)
    missing.facts = error.facts
    return missing

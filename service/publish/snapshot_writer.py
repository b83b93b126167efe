"""Writes full snapshots beside the processing: chunks, then the manifest, whose offset goes into the chain."""

from __future__ import annotations

import asyncio
import uuid
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, StopError
from snapreplay.service.clock import wall_ms, wall_time
from snapreplay.service.control.counters import Result
from snapreplay.service.control.status import SnapshotState, SnapshotStatus
from snapreplay.service.core.adoption import pointer_to
from snapreplay.service.core.chain import Chain
from snapreplay.service.ports import Appender, LogRecord
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.service.runtime.progress import RestoreProgress
from snapreplay.snapshots.format.chunks import ChunkWriter, open_chunk, reading_back
from snapreplay.snapshots.format.envelope import RecordKind, encode, headers_for, headers_of
from snapreplay.snapshots.format.records import NO_OFFSET, ChunkRef, Manifest, Pointer
from snapreplay.state.composite import CompositeCursor, Store
from snapreplay.state.digest import EMPTY, Digest, digest_of_stores, recorded_digests

DEFECT_HINT = "please report this, and restart the process: the recovery proves the state from the log"


class ImageDiffers(StopError):
    """The entries of a new snapshot do not have the digest of their batch. This is a defect; the snapshot is not
    used."""


class OffsetUnknown(RetryableError):
    """A broker acknowledged a record of a snapshot without its offset, so no increment can point to the snapshot. It is
    abandoned."""


class SnapshotTorn(RetryableError):
    """The snapshots topic was replaced while the snapshot was written: its first part is gone."""


class SnapshotMark(msgspec.Struct, frozen=True):
    """The moment of a snapshot: a committed batch, with nothing uncommitted merged."""

    cursor: CompositeCursor
    chain: Chain
    reason: str
    snapshot_id: str
    began_at: datetime
    shard_count: int


def mark(store: Store, chain: Chain, reason: str) -> SnapshotMark:
    """Begin a snapshot, while no batch is sealed: the state is frozen; until `release`, writes lie on top of it."""
    return SnapshotMark(store.mark(), chain, reason, uuid.uuid4().hex, wall_time(), store.shard_count)


class WrittenSnapshot(NamedTuple):
    """A snapshot that is written whole, and is not pointed to yet."""

    pointer: Pointer
    status: SnapshotStatus


async def write(context: Context, marked: SnapshotMark, progress: RestoreProgress) -> WrittenSnapshot:
    """Write the snapshot. It exists only when a committed increment holds the pointer returned here.

    Raises:
        Unreachable, RefusedRecord, OffsetUnknown, SnapshotTorn: abandoned. The fact `orphans` counts the chunks that
            were written and that no manifest names.
        ImageDiffers: STOP.
    """
    status = SnapshotStatus(
        context.partition, marked.snapshot_id, SnapshotState.WRITING, marked.reason, marked.chain.batch, marked.began_at
    )
    progress.snapshot(status)
    writer = _Writer(context, marked)
    try:
        pointer = await writer.write()
    except SnapreplayError as error:
        error.facts["orphans"] = len(writer.refs)
        _ended(context, progress, msgspec.structs.replace(status, state=SnapshotState.FAILED, error=error.message))
        raise
    except BaseException:
        context.metrics.snapshot_ended(Result.ABANDONED)
        raise
    finally:
        marked.cursor.release()
        await writer.close()
    written = msgspec.structs.replace(
        status,
        state=SnapshotState.WRITTEN,
        entries=writer.sums.count,
        chunks=len(writer.refs),
        size_bytes=sum(ref.size_bytes for ref in writer.refs),
        manifest_offset=pointer.manifest_offset,
        digest=str(writer.sums),
    )
    return WrittenSnapshot(pointer, _ended(context, progress, written))


async def _append(context: Context, appender: Appender, record: LogRecord, before: Sequence[ChunkRef]) -> int:
    offset = await appender.append(record, context.partition)
    if offset < 0:
        raise OffsetUnknown(f"{record.topic}-{context.partition}: a record was appended at an unknown offset")
    if before and offset <= before[-1].offset:  # a log only grows
        raise SnapshotTorn(
            f"{context.snapshots}: a record appended after offset {before[-1].offset} lies at {offset}:"
            " the topic was created again while a snapshot was written; the next snapshot is whole",
            offset=offset,
            expected_above=before[-1].offset,
        )
    return offset


def _ended(context: Context, progress: RestoreProgress, status: SnapshotStatus) -> SnapshotStatus:
    ended = msgspec.structs.replace(status, finished_at=wall_time())
    progress.snapshot(ended)
    if context.spans is not None:
        context.spans.snapshot(ended)
    context.metrics.snapshot_ended(
        Result.FAILED if ended.error else Result.SUCCEEDED,
        seconds=(wall_time() - ended.started_at).total_seconds(),
        size_bytes=ended.size_bytes,
    )
    return ended


class _Writer:
    def __init__(self, context: Context, marked: SnapshotMark) -> None:
        self._context = context
        self._marked = marked
        self._appender: Appender | None = None
        self.refs: list[ChunkRef] = []
        self._sums: dict[str, Digest] = {}

    @property
    def sums(self) -> Digest:
        """The digest of all entries written so far."""
        return digest_of_stores(self._sums)

    async def write(self) -> Pointer:
        context, appender = self._context, await self._context.cluster.appender()
        self._appender = appender
        await self._write_chunks(appender)
        manifest = self._manifest()
        record = LogRecord(context.snapshots.topic, encode(manifest), headers=headers_of(manifest))
        offset = await _append(context, appender, record, manifest.chunks)
        return pointer_to(manifest, offset)

    async def close(self) -> None:
        if self._appender is not None:
            await self._appender.close()

    async def _write_chunks(self, appender: Appender) -> None:
        """Work that holds the interpreter is done in this loop, in steps; zstd and checksums, which release it, in a
        thread. A thread that holds the interpreter makes the loop wait after each socket call."""
        limit = self._context.settings.snapshot.chunk_bytes_max
        writer, cursor = ChunkWriter(self._marked.snapshot_id, limit), self._marked.cursor
        while slices := await run_cooperatively(cursor.slicing(writer.raw_bytes)):
            for value in await run_cooperatively(writer.chunks(slices, cursor.store)):
                await self._write_chunk(appender, value)

    async def _write_chunk(self, appender: Appender, value: bytes) -> None:
        """Write a chunk; its digest is that of the bytes that are sent: what they were meant to hold proves nothing."""
        ref = ChunkRef(NO_OFFSET, len(self.refs), len(value), zlib.crc32(value))
        store, digest = await self._read_back(value, ref)
        self._sums[store] = self._sums.get(store, EMPTY).plus(digest)
        headers = headers_for(RecordKind.CHUNK, self._marked.snapshot_id)
        record = LogRecord(self._context.snapshots.topic, value, headers=headers)
        offset = await _append(self._context, appender, record, self.refs)
        self.refs.append(msgspec.structs.replace(ref, offset=offset))

    async def _read_back(self, value: bytes, ref: ChunkRef) -> tuple[str, Digest]:
        snapshot_id = self._marked.snapshot_id
        try:
            body = await asyncio.to_thread(open_chunk, value, ref, snapshot_id)
            return await run_cooperatively(reading_back(body, ref, snapshot_id))
        except DamagedError as error:
            raise ImageDiffers(
                f"snapshot of batch {self._marked.chain.batch}: {error.message}", hint=DEFECT_HINT
            ) from error

    def _manifest(self) -> Manifest:
        last, sums = self._marked.chain.last, self.sums
        if sums != last.digest:
            raise ImageDiffers(
                f"snapshot {self._marked.snapshot_id} of batch {last.batch} adds up to {sums},"
                f" but the batch's digest is {last.digest}",
                hint=DEFECT_HINT,
            )
        return Manifest(
            origin=self._marked.chain.origin,
            snapshot_id=self._marked.snapshot_id,
            owner_epoch=self._marked.chain.owner_epoch,
            batch=last.batch,
            increment_offset=self._marked.chain.last_offset,
            positions=last.positions,
            chunks=self.refs,
            entry_count=sums.count,
            digest=last.digest,
            entries_digest=sums,
            stream_time_ms=last.stream_time_ms,
            shard_count=self._marked.shard_count,
            created_at_ms=wall_ms(),
            genesis=last.genesis,
            topic_ids=dict(self._marked.chain.expected_ids),
            store_digests=recorded_digests(self._sums),
        )

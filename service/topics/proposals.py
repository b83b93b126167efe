"""Reads what a job proposes: the manifest, the increment of its batch, and every entry. The rules are in the core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.service.clock import wall_ms
from snapreplay.service.core import adoption
from snapreplay.service.core.adoption import Reason, Rejection, Standing
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.snapshots.format.chunks import open_chunk, reading_back
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, RecordKind, kind_of
from snapreplay.snapshots.format.records import Increment, Manifest
from snapreplay.snapshots.log.loading import chunk_range
from snapreplay.snapshots.log.reading import decode_as
from snapreplay.state.digest import EMPTY, Digest

StandingNow = Callable[[int], Standing]
"""What the owner knows now, given the first offset of the snapshots topic."""


class Rejected(Exception):
    """Carries the rejection out of the reading."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection.of(reason, detail)


class Examined(Struct, frozen=True):
    """A proposal whose every entry was hashed. `increment` is that of its batch."""

    manifest: Manifest
    offset: int
    increment: Increment


async def examine(
    context: Context, snapshots: Reader, increments: Reader, offset: int, standing: StandingNow
) -> Examined | Rejection:
    """Read and judge the proposal whose manifest lies at `offset`. Between two steps of a millisecond others run.

    `snapshots` and `increments` read these topics by their ids.

    Raises:
        Unreachable, ReadStalled, TopicGone: it could not be found out.
    """
    try:
        manifest, increment = await _compared(context, snapshots, increments, offset, standing)
        _raise_if(adoption.refuse_increment(manifest, increment, wall_ms()))
        found = await hashed_digests(snapshots, context.snapshots, manifest)
        _raise_if(adoption.refuse_entries(manifest, found))
    except Rejected as rejected:
        return rejected.rejection
    return Examined(manifest, offset, increment)


async def _compared(
    context: Context, snapshots: Reader, increments: Reader, offset: int, standing: StandingNow
) -> tuple[Manifest, Increment]:
    """Read the manifest at `offset`, and the increment that it names.

    Raises:
        Rejected: they are not what a proposal for this chain has.
    """
    manifest = await _manifest(snapshots, context.snapshots, offset)
    start_offset = (await snapshots.bounds(context.snapshots)).start_offset
    _raise_if(adoption.refuse_manifest(manifest, offset, standing(start_offset)))
    return manifest, await _increment(increments, context.increments, manifest.increment_offset)


def _raise_if(rejection: Rejection | None) -> None:
    if rejection is not None:
        raise Rejected(*rejection)


async def _manifest(reader: Reader, log: TopicPartition, offset: int) -> Manifest:
    record = await _at(reader, log, offset)
    if record is None:
        raise Rejected(Reason.NOT_THERE, f"{log} has no record at offset {offset}")
    value = record.value or b""
    if len(value) > RECORD_BYTES_MAX:
        raise Rejected(
            Reason.OUT_OF_BOUNDS, f"its manifest has {len(value)} bytes, but a writer makes at most {RECORD_BYTES_MAX}"
        )
    try:
        if kind_of(value) not in {RecordKind.MANIFEST, None}:
            raise Rejected(Reason.NOT_A_MANIFEST, f"{log} has no manifest but another record at offset {offset}")
        return decode_as(Manifest, value, log, offset)
    except UnknownFormatError as error:
        raise Rejected(Reason.UNKNOWN_FORMAT, error.message) from error
    except DamagedError as error:
        raise Rejected(Reason.UNREADABLE, error.message) from error


async def _increment(reader: Reader, log: TopicPartition, offset: int) -> Increment:
    record = await _at(reader, log, offset)
    if record is None:
        raise Rejected(
            Reason.INCREMENT_DIFFERS, f"{log} has no committed record at offset {offset}, where its increment should be"
        )
    try:
        return decode_as(Increment, record.value or b"", log, offset)
    except (DamagedError, UnknownFormatError) as error:
        raise Rejected(Reason.INCREMENT_DIFFERS, error.message) from error


async def _at(reader: Reader, log: TopicPartition, offset: int) -> InputRecord | None:
    try:
        return await reader.read_at(log, offset)
    except (OffsetTrimmed, OffsetBeyondEnd):
        return None


async def hashed_digests(reader: Reader, log: TopicPartition, manifest: Manifest) -> dict[str, Digest]:
    """Return the digest of the entries by store, whatever the chunks themselves say about it."""
    found: dict[str, Digest] = {}
    missing = {ref.offset: ref for ref in manifest.chunks}
    try:
        async for records in reader.read(log, *chunk_range(manifest)):
            for record in records:
                ref = missing.pop(record.offset, None)
                if ref is None:
                    continue
                value, snapshot_id = record.value or b"", manifest.snapshot_id
                body = await asyncio.to_thread(open_chunk, value, ref, snapshot_id)
                steps = reading_back(body, ref, snapshot_id, manifest.shard_count)
                store, digest = await run_cooperatively(steps)
                if not digest.count:
                    raise Rejected(Reason.INCONSISTENT, f"its chunk {ref.sequence}, of store {store!r}, has no entries")
                found[store] = found.get(store, EMPTY).plus(digest)
    except (DamagedError, UnknownFormatError) as error:
        raise Rejected(Reason.CHUNK_DAMAGED, error.message) from error
    except (OffsetTrimmed, OffsetBeyondEnd) as error:
        raise Rejected(Reason.CHUNK_MISSING, error.message) from error
    if missing:
        chunks = counted(len(manifest.chunks), "chunk")
        raise Rejected(
            Reason.CHUNK_MISSING, f"{log} lacks {len(missing)} of {chunks}, the first at offset {min(missing)}"
        )
    return found

"""Where our logs begin now, and whether the snapshots topic proves that the increments topic was cut."""

from __future__ import annotations

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.refusals import LogCut
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.decode import is_ours
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from snapreplay.snapshots.format.records import Increment, Manifest
from snapreplay.snapshots.plan import LogStarts

# Enough for a manifest after the newest pointer; a longer tail of orphans proves nothing.
TAIL_RECORDS = 64


async def read_starts(context: Context, last: FoundIncrement) -> LogStarts:
    """Log starts of our two topics and of every input, asked afresh.

    Raises:
        LogCut: a manifest is written only after its batch's commit was answered OK, so one ahead of the last
            increment means that increments were lost.
    """
    async with reading(context.cluster, read_committed=False) as reader:
        increments = await reader.bounds(context.increments)
        snapshots = await reader.bounds(context.snapshots)
        inputs = {
            name: (await reader.bounds(TopicPartition(name, context.partition))).start_offset
            for name in context.input_names
        }
        await _check_cut(context, reader, last, snapshots)
    return LogStarts(increments.start_offset, snapshots.start_offset, inputs)


async def _check_cut(
    context: Context, reader: Reader, last: FoundIncrement, bounds: Bounds
) -> None:
    start_offset = max(bounds.start_offset, bounds.end_offset - TAIL_RECORDS)
    if last.increment.pointers:
        start_offset = max(start_offset, last.increment.pointers[0].manifest_offset + 1)
    if start_offset >= bounds.end_offset:
        return
    async for records in reader.read(context.snapshots, start_offset, bounds.end_offset):
        for record in records:
            manifest = manifest_in(record.value or b"")
            if manifest is not None and manifest.batch > last.increment.batch:
                raise _cut(context, manifest, record.offset, last.increment)


def manifest_in(value: bytes) -> Manifest | None:
    """The manifest, if it can be read; garbage that nothing points to is ignored."""
    try:
        if not is_ours(value, ()) or kind_of(value) is not RecordKind.MANIFEST:
            return None
        entry = decode(value)
    except SnapreplayError:
        return None
    return entry if isinstance(entry, Manifest) else None


def _cut(context: Context, manifest: Manifest, offset: int, last: Increment) -> LogCut:
    log = context.snapshots
    return LogCut(
        f"{log} offset {offset} holds a snapshot of batch {manifest.batch}, but the"
        f" last increment is batch {last.batch}: {context.increments.topic} was cut, and"
        " committed batches are lost (unclean election, deleted records)",
        hint="bring the topic back from a replica, backup or mirror",
        manifest_batch=manifest.batch,
        last_batch=last.batch,
        increment_offset=manifest.increment_offset,
    )

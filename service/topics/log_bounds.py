"""Where our logs begin now, and whether the snapshots topic proves that the increments topic was cut."""

from __future__ import annotations

import logging

from snapreplay.service.core.log_cut import is_recent, is_witness
from snapreplay.service.core.refusals import LogCut
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.manifests import TAIL_OFFSETS_MAX, newest_first
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.records import Increment, Manifest
from snapreplay.snapshots.plan import LogStarts

log = logging.getLogger("snapreplay.partition")


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
    """Back to the newest pointer, or to the newest manifest of the last owner: what nothing points to, however much of
    it there is, hides neither."""
    start_offset = max(bounds.start_offset, bounds.end_offset - TAIL_OFFSETS_MAX)
    if last.increment.pointers:
        start_offset = max(start_offset, last.increment.pointers[0].manifest_offset + 1)
    tail = Bounds(start_offset, bounds.end_offset)
    async for offset, manifest in newest_first(reader, context.snapshots, tail):
        if is_witness(manifest, last):
            raise _cut(context, manifest, offset, last.increment)
        if is_recent(manifest, last):
            return
        if manifest.batch > last.increment.batch:
            log.warning(
                "partition %d: the manifest at offset %d of %s is of batch %d, but the last increment is batch %d:"
                " no owner of this chain wrote it, and it is ignored",
                context.partition,
                offset,
                context.snapshots,
                manifest.batch,
                last.increment.batch,
            )


def _cut(context: Context, manifest: Manifest, offset: int, last: Increment) -> LogCut:
    return LogCut(
        f"{context.snapshots} offset {offset} holds a snapshot of batch {manifest.batch}, but the"
        f" last increment is batch {last.batch}: {context.increments.topic} was cut, and"
        " committed batches are lost (unclean election, deleted records). The manifest is of snapshot"
        f" {manifest.snapshot_id}, by owner epoch {manifest.owner_epoch}, app version {manifest.origin.app_version}",
        hint="bring the topic back from a replica, backup or mirror",
        manifest_batch=manifest.batch,
        last_batch=last.batch,
        increment_offset=manifest.increment_offset,
    )

"""Asks the logs for what a recovery would need: where they begin, whether the snapshots topic proves that the
increments topic was cut, and whether there is a way back to the last increment."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, MutableMapping

from snapreplay.counted import counted
from snapreplay.errors import StopError
from snapreplay.service.core.recoverability import Seen, start_of
from snapreplay.service.core.refusals import LogCut
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import is_recent, shows_cut
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.witnesses import behind_witness
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import TAIL_OFFSETS_MAX, UNUSABLE, load_manifest, newest_first
from snapreplay.snapshots.format.records import Increment, Manifest, Pointer
from snapreplay.snapshots.plan import FromGenesis, LogStarts

log = logging.getLogger("snapreplay.partition")


async def read_starts(context: Context, last: FoundIncrement, *, disregard_manifests: bool = False) -> LogStarts:
    """Log starts of our two topics and of every input, asked afresh.

    Args:
        disregard_manifests: an operator knows that no owner wrote those that are ahead of the log, or takes the log
            as it is.

    Raises:
        IncrementsBehind: a later batch than the last one was committed.
        LogCut: a manifest is written only after its batch's commit was answered OK, so one ahead of the last
            increment means that increments were lost.
    """
    async with reading(context.cluster, read_committed=False) as reader:
        found, starts = await _bounds(context, reader, last.increment.positions)
        if not disregard_manifests:
            await _refuse_lost_end(context, reader, last, found[context.snapshots])
    return starts


async def refuse_lost_end(context: Context, last: FoundIncrement) -> None:
    """Raise LogCut or IncrementsBehind, as `read_starts`; the inputs need not exist."""
    async with reading(context.cluster, read_committed=False) as reader:
        await _refuse_lost_end(context, reader, last, await reader.bounds(context.snapshots))


async def _refuse_lost_end(context: Context, reader: Reader, last: FoundIncrement, snapshots: Bounds) -> None:
    ahead = await _ahead(context, reader, last, snapshots)
    if ahead:
        raise _cut(context, ahead, last.increment)
    lost = await behind_witness(context, last)
    if lost is not None:
        raise lost


async def log_starts(
    context: Context, reader: Reader, inputs: Iterable[str], there: Container[str] | None = None
) -> LogStarts:
    """Find where both own topics and these inputs begin. One that is not `there` does not exist: nothing is trimmed."""
    return (await _bounds(context, reader, inputs, there))[1]


async def _bounds(
    context: Context, reader: Reader, inputs: Iterable[str], there: Container[str] | None = None
) -> tuple[Mapping[TopicPartition, Bounds], LogStarts]:
    places = {name: TopicPartition(name, context.partition) for name in inputs}
    logs = (context.increments, context.snapshots, *places.values())
    found = await reader.bounds_of([each for each in logs if there is None or each.topic in there])
    starts = {log: found[log].start_offset if log in found else 0 for log in logs}
    inputs_start = {name: starts[place] for name, place in places.items()}
    return found, LogStarts(starts[context.increments], starts[context.snapshots], inputs_start)


async def manifests_ahead(context: Context, last: FoundIncrement) -> list[tuple[int, Manifest]]:
    """Return the manifests that show a cut log, the newest first, with their offsets."""
    async with reading(context.cluster, read_committed=False) as reader:
        return await _ahead(context, reader, last, await reader.bounds(context.snapshots))


async def _ahead(context: Context, reader: Reader, last: FoundIncrement, bounds: Bounds) -> list[tuple[int, Manifest]]:
    """Look back to the newest pointer, or to the newest manifest of the last owner: what nothing points to, however
    much of it there is, hides neither."""
    start_offset = max(bounds.start_offset, bounds.end_offset - TAIL_OFFSETS_MAX)
    if last.increment.pointers:
        start_offset = max(start_offset, last.increment.pointers[0].manifest_offset + 1)
    tail = Bounds(start_offset, bounds.end_offset)
    ahead: list[tuple[int, Manifest]] = []
    async for offset, manifest in newest_first(reader, context.snapshots, tail):
        if shows_cut(manifest, last):
            ahead.append((offset, manifest))
        elif is_recent(manifest, last):
            break
        elif manifest.batch > last.increment.batch:
            log.warning(
                "partition %d: the manifest at offset %d of %s is of batch %d, but the last increment is batch %d:"
                " no owner of this chain wrote it, and it is ignored",
                context.partition,
                offset,
                context.snapshots,
                manifest.batch,
                last.increment.batch,
            )
    return ahead


def _cut(context: Context, ahead: list[tuple[int, Manifest]], last: Increment) -> LogCut:
    (offset, manifest), *others = ahead
    more = f" ({counted(len(others), 'older manifest')} of later batches, too)" if others else ""
    return LogCut(
        f"{context.snapshots} offset {offset} holds a snapshot of batch {manifest.batch}{more}, but the"
        f" last increment is batch {last.batch}: {context.increments.topic} was cut, and"
        " committed batches are lost (unclean election, deleted records). The manifest is of snapshot"
        f" {manifest.snapshot_id}, by owner epoch {manifest.owner_epoch}, app version {manifest.origin.app_version}",
        hint="restore the topic from a replica, backup or mirror",
        manifest_offset=offset,
        manifest_batch=manifest.batch,
        last_batch=last.batch,
        increment_offset=manifest.increment_offset,
    )


Pointed = MutableMapping[str, dict[str, int]]
"""Input positions of snapshots, by id."""


async def way_back(
    snapshots: TopicPartition,
    reader: Reader,
    last: Increment,
    last_offset: int,
    starts: LogStarts,
    pointed: Pointed,
    *,
    by_replay: bool,
) -> Seen:
    """Look at the logs, and read the manifest that a recovery would start from: a pointer to what was deleted leads
    nowhere.

    Args:
        reader: of all records, also those that are not committed.
        pointed: what is known from an earlier look; kept up to date.
    """
    for snapshot_id in set(pointed) - {pointer.snapshot_id for pointer in last.pointers}:
        del pointed[snapshot_id]
    unusable: dict[str, str] = {}
    for pointer in last.pointers if by_replay else ():
        if pointer.snapshot_id not in pointed:
            await _read(snapshots, reader, pointer, pointed, unusable)
    while True:
        seen = Seen(last, last_offset, starts, dict(pointed), by_replay, dict(unusable))
        try:
            start = start_of(seen)
        except StopError:
            return seen
        if isinstance(start, FromGenesis):
            return seen
        if await _read(snapshots, reader, start.pointer, pointed, unusable):
            return seen


async def _read(
    snapshots: TopicPartition, reader: Reader, pointer: Pointer, pointed: Pointed, unusable: MutableMapping[str, str]
) -> bool:
    """Say whether the manifest is where the pointer says. A log that lost its end has lost it, too."""
    try:
        manifest = await load_manifest(reader, snapshots, pointer)
    except UNUSABLE as error:
        unusable[pointer.snapshot_id] = error.message
        return False
    pointed[pointer.snapshot_id] = manifest.positions
    return True

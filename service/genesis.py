"""`init`: batch 0 in every partition. Nothing else ever takes an empty log for a new app."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from snapreplay.service.clock import wall_ms
from snapreplay.service.core.chain import genesis_increment
from snapreplay.service.core.search import Found
from snapreplay.service.partition.claiming import claim_record, reader_behind_claim
from snapreplay.service.partition.context import ClusterView, Context, Identity
from snapreplay.service.partition.increments import last_increment
from snapreplay.service.ports import Bounds, Cluster, LogRecord, TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.settings import Settings
from snapreplay.snapshots.errors import StopError
from snapreplay.snapshots.format.envelope import encode, headers_of
from snapreplay.snapshots.format.records import Genesis
from snapreplay.snapshots.program.app import App
from snapreplay.snapshots.state.store import store_of

Start = Literal["earliest", "latest"]


class PartitionLost(StopError):
    """Some partitions have processed records, another one holds no increment at all."""


async def init_app(
    app: App[Any], settings: Settings, cluster: Cluster, start: Start = "earliest"
) -> list[str]:
    """Write the genesis of every partition that has none; repeating it changes nothing.

    Returns:
        One line per partition.

    Raises:
        PartitionLost: a partition is empty although others are past their genesis; nothing was written.
        StopError: increments are gone but snapshots exist.
        UsageError, Unreachable: as preflight.
    """
    view = await inspect(app, settings, cluster)
    identity = Identity.of_this_process(settings.instance_id)
    contexts = [
        Context(app, settings, cluster, view, identity, number, asyncio.Semaphore(1))
        for number in range(view.partition_count)
    ]
    existing = [await _last(context) for context in contexts]
    _refuse_lost(contexts, existing)
    return [
        _already(context, found) if found is not None else await _write(context, view, start)
        for context, found in zip(contexts, existing, strict=True)
    ]


def _already(context: Context, found: Found) -> str:
    return f"partition {context.partition}: already initialised, at batch {found.increment.batch}"


def _refuse_lost(contexts: list[Context], existing: list[Found | None]) -> None:
    """An interrupted `init` leaves partitions without genesis; but then none of the others has processed."""
    batches = {c.partition: f.increment.batch for c, f in zip(contexts, existing, strict=True) if f}
    ahead = [number for number, batch in batches.items() if batch > 0]
    empty = [context for context in contexts if context.partition not in batches]
    if ahead and empty:
        lost = empty[0]
        raise PartitionLost(
            f"{lost.increments} holds no increment, but partition {ahead[0]} is at batch"
            f" {batches[ahead[0]]}: the increments of partition {lost.partition} were lost",
            hint="restore the increments topic; to start anew use another app id",
            partition=lost.partition,
        )


async def _last(context: Context) -> Found | None:
    """The last increment, without fencing anybody: a running owner must not notice `init`."""
    reader = await context.cluster.reader()
    try:
        bounds = await reader.bounds(context.increments)
        found = await last_increment(reader, context.increments, bounds)
        if found is not None:
            return found
        snapshots = await reader.bounds(context.snapshots)
    finally:
        await reader.close()
    if snapshots.end_offset > 0:
        raise StopError(
            f"{context.increments} holds no increment, but"
            f" {context.snapshots} holds snapshots: the increments were lost",
            hint="restore the increments topic; or `snapreplay run`: the partition is FAILED then, and its hint has the"
            " command to accept the newest snapshot; to start anew delete both topics, or use another app id",
        )
    return None


async def _last_before_claim(context: Context, claim_id: str, epoch: int) -> Found | None:
    """Whatever was committed before our fence is visible to a reader that delivers our claim: another `init` at
    the same moment, or a chain that a stale leader had not shown."""
    async with reader_behind_claim(context, claim_id, epoch) as (reader, seen):
        return await last_increment(
            reader, context.increments, Bounds(seen.log_start_offset, epoch)
        )


async def _write(context: Context, view: ClusterView, start: Start) -> str:
    starts = await _start_offsets(context, start)
    genesis = Genesis(view.cluster_id, view.partition_count, starts)
    digest = store_of(context.app.state()).digest
    producer = await context.cluster.fence(context.transactional_id)
    try:
        claim = claim_record(context, context.identity.process_id)
        (epoch,) = await producer.commit(context.partition, (), (claim,))
        found = await _last_before_claim(context, context.identity.process_id, epoch)
        if found is not None:
            return _already(context, found)
        increment = genesis_increment(context.origin, epoch, genesis, digest, wall_ms())
        record = LogRecord(
            context.increments.topic, encode(increment), headers=headers_of(increment)
        )
        await producer.commit(context.partition, (), (record,))
    finally:
        await producer.discard()
    listed = ", ".join(f"{topic} from offset {offset}" for topic, offset in starts.items())
    return f"partition {context.partition}: initialised, {listed}"


async def _start_offsets(context: Context, start: Start) -> dict[str, int]:
    reader = await context.cluster.reader()
    try:
        bounds = {
            name: await reader.bounds(TopicPartition(name, context.partition))
            for name in context.input_names
        }
    finally:
        await reader.close()
    return {
        name: each.start_offset if start == "earliest" else each.end_offset
        for name, each in bounds.items()
    }

"""Questions before an app begins: where, when no position is recorded, and whether a partition had an owner that its
log does not show. The transaction coordinator remembers fences."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, get_args

from msgspec import Struct

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.ranges import Anchor, PositionAnchor
from snapreplay.errors import StopError, UsageError
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.lineage import Fencer, fencer
from snapreplay.service.ports import Bounds, Cluster, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.witnesses import witness_of
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.log.reading import is_ours

StartFrom = Literal["earliest", "latest"]


def check_start(start: object) -> None:
    """Raise UsageError if it is not a `StartFrom`. A typo must not skip the records that are in the inputs."""
    if start not in get_args(StartFrom):
        raise UsageError(
            f"start={start!r} is not a valid value", hint=f"use one of {', '.join(map(repr, get_args(StartFrom)))}"
        )


class Places(Struct, frozen=True):
    """Where to begin: input → the next offset, what its log holds directly below, and the last record before it, if it
    was processed."""

    positions: dict[str, int]
    below: dict[str, PositionAnchor]
    anchors: dict[str, Anchor]


def place_ms(text: str, words: Sequence[str]) -> int | None:
    """Return the time that `--from` gives (ISO 8601 with its offset from UTC), in milliseconds since the epoch; None:
    it is one of these words. Raises UsageError: neither."""
    if text in words:
        return None
    with suppress(ValueError):
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return int(at.timestamp() * 1000)
    raise UsageError(
        f"--from {text} is not a valid value",
        hint=f"use {', '.join(words)}, or a time with its offset from UTC: 2026-11-03T08:00:00+00:00",
    )


async def start_offsets(context: Context, inputs: Iterable[str], start: StartFrom | int) -> Places:
    """Return where to begin in these inputs, as their logs are now: the log's start, its last stable offset, or the
    first record at a time (ms) or later. An internal topic begins at its end: what other inputs lead to is sent again.
    A broadcast table begins at its start: it is needed whole.
    """
    positions, below = dict[str, int](), dict[str, PositionAnchor]()
    async with reading(context.cluster) as reader:
        for name in inputs:
            partition = TopicPartition(name, context.partition)
            bounds = await reader.bounds(partition)
            is_internal = name in context.app.internal_names
            is_whole = names.BROADCAST in name or (start == "earliest" and not is_internal)
            positions[name] = bounds.start_offset if is_whole else bounds.end_offset
            if isinstance(start, int) and not (is_internal or is_whole):
                positions[name] = await reader.first_at(partition, start)
            if positions[name] > bounds.start_offset:
                batch = await reader.batch_below(partition, positions[name])
                if batch is not None:
                    below[name] = batch.anchor
    return Places(positions, below, {})


CLAIM_FOLLOWS_SECONDS = 1.0  # of an `init`, or an owner, that has just fenced


async def fenced_before(context: Context) -> Fencer:
    """Say who has fenced a partition whose log holds no increment. It was an owner if its claim does not appear, even
    after a while. A transaction marker is no claim: it is also written into a topic that was created again."""
    if await _is_witnessed(context):
        return Fencer.OWNER
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CLAIM_FOLLOWS_SECONDS
    while True:
        late = loop.time() > deadline  # before the log is asked: answers may take longer than a claim
        async with reading(context.cluster, read_committed=False) as reader:
            bounds = await reader.bounds(context.increments)
            if bounds.start_offset > 0:
                return Fencer.OWNER  # only an owner deletes records
            if await holds_ours(reader, context.increments, bounds):
                return Fencer.INIT
        found = await _last_fencer(context.cluster, context.app, context.partition)
        if late or found is not Fencer.OWNER:
            return found
        await asyncio.sleep(0.1)


async def holds_ours(reader: Reader, log: TopicPartition, bounds: Bounds) -> bool:
    """Say whether the log holds one of our records; transaction markers do not count."""
    async for records in reader.read(log, *bounds):
        if any(is_ours(record.value or b"", record.headers) for record in records):
            return True
    return False


async def _is_witnessed(context: Context) -> bool:
    """Say whether a batch behind the genesis was committed to this log."""
    witness = await witness_of(context)
    if witness is None or witness.batch == 0:
        return False
    return witness.topic_id in {"", context.view.topic_ids.get(context.increments.topic, "")}


async def never_owned(cluster: Cluster, app: App[Any], partition_count: int) -> bool:
    """Say whether the coordinator knows no owner of any partition."""
    for partition in range(partition_count):
        if await _last_fencer(cluster, app, partition) is Fencer.OWNER:
            return False
    return True


COORDINATOR_FOLLOWS_SECONDS = 15.0  # a new cluster has no coordinator until the first request creates its topic


async def _last_fencer(cluster: Cluster, app: App[Any], partition: int) -> Fencer:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + COORDINATOR_FOLLOWS_SECONDS
    while True:
        try:
            return fencer(await cluster.last_fence(names.transactional_id(app.app_id, partition)))
        except StopError:  # a cluster that does not tell: then any member may have fenced
            return Fencer.OWNER if await cluster.member_count(app.app_id) else Fencer.NONE
        except Unreachable:
            if loop.time() > deadline:
                raise
        await asyncio.sleep(0.2)

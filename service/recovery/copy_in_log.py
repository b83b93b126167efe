"""Asks the cluster whether the log holds a copy of a state in memory; `core/custody.py` judges the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec

from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, StopError
from snapreplay.service.core import custody, events
from snapreplay.service.core.chain import read_positions
from snapreplay.service.core.custody import Verdict
from snapreplay.service.core.inspected import changes
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.recoverability import start_of
from snapreplay.service.core.retained import RetainedState, needs_inputs
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Bounds, TopicPartition
from snapreplay.service.recovery.input_identity import lost_partitions, was_cut
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.increments import last_in_log
from snapreplay.service.topics.log_bounds import log_starts, way_back
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import NO_OFFSET, Increment
from snapreplay.snapshots.plan import FromSnapshot

T = TypeVar("T")

LOOK_SECONDS_MAX = 5.0
LOOK_AGAIN_SECONDS = 0.2


async def topic_ids_now(context: Context) -> dict[str, str]:
    """Return the ids of both own topics; a missing one is absent."""
    return await context.cluster.topic_ids([context.increments.topic, context.snapshots.topic])


class OutputUndecided(RetryableError):
    """The outputs of a batch in doubt are behind an open transaction, so it is not known yet whether the batch was
    committed.

    Safe: Do not stop this process: its memory has the only copy of the state. The partition checks again by itself.
    """


async def resolved(context: Context, output: tuple[str, int, int]) -> events.DoubtResolved:
    """Say whether the batch of this output was committed. Its transaction has ended: we have fenced since.

    Raises:
        OutputUndecided: another transaction on its partition is open.
    """
    topic, number, offset = output
    target = TopicPartition(topic, number)
    if topic not in await context.cluster.topics([topic]):
        return events.DoubtResolved(None, f"topic {topic} no longer exists")
    async with reading(context.cluster) as reader:
        try:
            bounds = await reader.bounds(target)
            if bounds.end_offset <= offset:
                async with reading(context.cluster, read_committed=False) as plain:
                    end_offset = (await plain.bounds(target)).end_offset
                if offset < end_offset:
                    raise OutputUndecided(
                        f"{target} can be read up to {bounds.end_offset} of {end_offset}:"
                        f" the output at {offset} is undecided",
                        hint="wait, and do not stop this process, whose memory has the only copy of the state: an open"
                        " transaction lies before the output and ends at its timeout",
                    )
                return events.DoubtResolved(None, f"{target} ends at {end_offset}, but the output was at {offset}")
            record = await reader.read_at(target, offset)
        except (OffsetTrimmed, OffsetBeyondEnd) as error:
            return events.DoubtResolved(None, error.message)
    return events.DoubtResolved(record is not None)


async def looked_up(context: Context, kept: RetainedState) -> Verdict | None:
    """Compare a state in memory with the log. Reads only. None: no answer in time. A log with a damaged end does not
    lead to it."""
    topic = context.increments.topic

    async def ask() -> Verdict:
        topic_ids = await topic_ids_now(context)
        try:
            found = await _found(context, kept) if topic in topic_ids else None
        except DamagedError:
            found = None
        return custody.verdict(kept, found, topic, topic_ids)

    return await _answer(ask)


async def _answer(ask: Callable[[], Awaitable[T]]) -> T | None:
    """Ask until there is an answer, or the time is over: a single lost answer proves nothing."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_SECONDS_MAX):
            while True:
                with suppress(SnapreplayError):
                    return await ask()
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
    return None


async def last_now(context: Context) -> FoundIncrement | None:
    """Return the last increment of the log; None also without a timely answer."""
    with suppress(SnapreplayError, TimeoutError):
        return await asked_for_last(context)
    return None


async def asked_for_last(context: Context) -> FoundIncrement | None:
    """Return the last increment of the log; None if it holds none, or does not exist.

    Raises:
        SnapreplayError, TimeoutError: there is no timely answer, or the end of the log is damaged.
    """
    async with asyncio.timeout(LOOK_SECONDS_MAX):
        there = context.increments.topic in await topic_ids_now(context)
        return await last_in_log(context) if there else None


async def end_now(context: Context) -> tuple[str, Bounds] | None:
    """Return the id of the increments topic and its bounds; None: no answer soon, or no such topic."""
    log = context.increments
    try:
        async with asyncio.timeout(LOOK_SECONDS_MAX):
            topic_id = (await topic_ids_now(context)).get(log.topic)
            if topic_id is None:
                return None
            async with reading(context.cluster) as reader:
                return topic_id, await reader.bounds(log)
    except (SnapreplayError, TimeoutError):
        return None


async def restorable(context: Context, last: Increment) -> bool | None:
    """Say whether a recovery would arrive at the state after `last`; None: no answer in time. An increment without
    pointers may have lost them with their topic."""

    async def ask() -> bool:
        return await _restorable(context, last, await topic_ids_now(context))

    return await _answer(ask)


async def topic_ids_for(context: Context, kept: RetainedState | None) -> events.TopicIdsRead:
    """Read the topic ids for an owner that has claimed; `kept` is what it has in memory."""
    topic_ids = await topic_ids_now(context)
    if kept is None or context.increments.topic not in topic_ids:
        return events.TopicIdsRead(topic_ids)
    if not needs_inputs(kept.last):
        return events.TopicIdsRead(topic_ids)
    return events.TopicIdsRead(topic_ids, await _restorable(context, kept.last, topic_ids))


async def _restorable(context: Context, last: Increment, topic_ids: Mapping[str, str]) -> bool:
    """Ask the planner that a recovery asks. Only of `last` it is known whether the log has changes."""
    by_replay = last.changes is None and bool(last.anchors)
    if context.snapshots.topic not in topic_ids:
        last = msgspec.structs.replace(last, pointers=[])
    lost = await lost_partitions(context, last.positions)
    there = {*topic_ids, *await context.cluster.topic_ids(tuple(last.positions))} - lost.keys()
    async with reading(context.cluster, read_committed=False) as reader:
        starts = await log_starts(context, reader, last.positions, there)
        seen = await way_back(context.snapshots, reader, last, NO_OFFSET, starts, {}, by_replay=by_replay)
    try:
        start = start_of(seen)
    except StopError:
        return False
    is_newest = isinstance(start, FromSnapshot) and start.pointer == last.pointers[0]
    replays = needs_inputs(last) if is_newest else by_replay
    return not replays or (not lost and await _inputs_are_there(context, last))


async def _inputs_are_there(context: Context, last: Increment) -> bool:
    """Say whether the inputs are those that were processed, and as long. Only a recovery can tell a copy."""
    ids = await context.cluster.topic_ids(tuple(last.positions))
    if changes(last.positions, last.topic_ids, ids):
        return False
    async with reading(context.cluster, topic_ids=ids) as reader:
        for topic, read_position in read_positions(last).items():
            partition = TopicPartition(topic, context.partition)
            bounds = await reader.bounds(partition)
            if not bounds.start_offset <= read_position.position <= bounds.end_offset:
                return False
            if await was_cut(reader, partition, read_position):
                return False
    return True


async def _found(context: Context, kept: RetainedState) -> FoundIncrement | None:
    """Find the last increment. An open transaction of another producer hides what was committed behind it."""
    found = await last_in_log(context)
    if found is not None and found.offset >= kept.last_offset:
        return found
    async with reading(context.cluster, read_committed=False) as reader:
        try:
            record = await reader.read_at(context.increments, kept.last_offset)
            same = record is not None and decode(record.value or b"") == kept.last
        except (OffsetTrimmed, OffsetBeyondEnd, DamagedError, StopError):
            same = False
    return FoundIncrement(kept.last, kept.last_offset) if same else found

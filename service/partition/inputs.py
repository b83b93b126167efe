"""Is each input still the log that was processed, and does it reach to where we go on?"""

from __future__ import annotations

import asyncio

from snapreplay.service.partition.context import Context
from snapreplay.service.ports import OffsetBeyondEnd, OffsetTrimmed, Reader, TopicPartition
from snapreplay.service.topics import check_replayable
from snapreplay.snapshots.errors import StopError
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.program.anchor import anchor_of
from snapreplay.snapshots.program.ranges import Anchor

# A leader cut off from its peers was believed for up to 11 s after healing (measured).
STALE_LEADER_SECONDS = 30.0
ASK_AGAIN_SECONDS = 1.0


class InputReplaced(StopError):
    """The record at an anchor is another one: the topic was deleted and re-created, or is a mirror."""


class InputShorter(StopError):
    """The input ends before our position, and no broker says otherwise."""


class InputTrimmed(StopError):
    """The records to go on with are gone: the input's log begins beyond our position."""


async def check_policies(context: Context) -> None:
    """Compaction may have been switched on since the start.

    Raises:
        UsageError: an input is compacted, and this app recovers by replay.
        Unreachable: the cluster could not be asked.
    """
    facts = await context.cluster.topics(context.input_names)
    check_replayable(context.app, context.settings, list(facts.values()))


async def check_inputs(context: Context, last: Increment) -> None:
    """Hold every input against the last increment, for half a minute where a broker may only be behind.

    Raises:
        InputReplaced, InputTrimmed, InputShorter: STOP, with both facts.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STALE_LEADER_SECONDS
    while True:
        try:
            return await _check_once(context, last)
        except OffsetBeyondEnd as error:
            if loop.time() > deadline:
                raise InputShorter(error.message, hint=error.hint, **error.facts) from error
        await asyncio.sleep(ASK_AGAIN_SECONDS)


async def _check_once(context: Context, last: Increment) -> None:
    """With a new client each time: another broker may know better than a stale leader."""
    reader = await context.cluster.reader()
    try:
        for topic, position in last.positions.items():
            partition = TopicPartition(topic, context.partition)
            await _check_position(reader, partition, position)
            anchor = last.anchors.get(topic)
            if anchor is not None:
                await _check_anchor(reader, partition, anchor, position)
    finally:
        await reader.close()


async def _check_position(reader: Reader, partition: TopicPartition, position: int) -> None:
    bounds = await reader.bounds(partition)
    if position < bounds.start_offset:
        raise InputTrimmed(
            f"input {partition}: the next record to process is offset {position},"
            f" the log begins at {bounds.start_offset}; {bounds.start_offset - position} offsets are gone",
            hint="raise the input's retention.ms; restore the records, or start a new app id from a state you"
            " trust: going on here would skip them silently",
            topic=partition.topic,
            position=position,
            log_start_offset=bounds.start_offset,
        )
    if position > bounds.end_offset:
        raise OffsetBeyondEnd(
            f"input {partition} ends at {bounds.end_offset}, our position is"
            f" {position}: the log is shorter than it was",
            hint="was the topic deleted and re-created? Its old offsets mean nothing then: use a new app id",
            topic=partition.topic,
            position=position,
            end_offset=bounds.end_offset,
        )


async def _check_anchor(
    reader: Reader, partition: TopicPartition, anchor: Anchor, position: int
) -> None:
    """A trimmed or compacted anchor proves nothing either way; only another record there does."""
    try:
        record = await reader.read_at(partition, anchor.offset)
    except OffsetTrimmed:
        return
    if record is None or anchor_of(record) == anchor:
        return
    raise InputReplaced(
        f"input {partition} offset {anchor.offset} is not the record that was"
        f" processed there: then timestamp {anchor.timestamp_ms}, xxh64 {anchor.xxh64:016x}; now timestamp"
        f" {record.timestamp}, xxh64 {anchor_of(record).xxh64:016x}",
        hint="this is not the input that was processed (topic re-created, or another cluster's mirror):"
        " use a new app id, or the old input",
        topic=partition.topic,
        position=position,
        recorded=anchor.xxh64,
        found=anchor_of(record).xxh64,
    )

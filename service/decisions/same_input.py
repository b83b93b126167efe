"""How far an input still is the log that was processed: every increment keeps the last record of its batch."""

from __future__ import annotations

from snapreplay.service.core.search import Window, windows
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.decoding import decode_as
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.snapshots.errors import SnapreplayError
from snapreplay.snapshots.format.envelope import Kind, kind_of
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.program.anchor import anchor_of
from snapreplay.snapshots.program.ranges import Anchor


async def newest_common(context: Context, topic: str, last_offset: int) -> Anchor | None:
    """The last anchor, of the increments up to `last_offset`, whose record the input still holds; None when it holds
    none of them: then it is another log from its start.

    A log that was cut and grew again agrees up to the cut; one that was created anew agrees nowhere.
    """
    reader = await context.cluster.reader()
    try:
        anchors = await _anchors(reader, context.increments, topic, last_offset)
        partition = TopicPartition(topic, context.partition)
        start_offset, end_offset = await reader.bounds(partition)
        held = [each for each in anchors if start_offset <= each.offset < end_offset]
        low, high = 0, len(held)
        while low < high:
            middle = (low + high) // 2
            record = await reader.read_at(partition, held[middle].offset)
            if record is not None and anchor_of(record) == held[middle]:
                low = middle + 1
            else:
                high = middle
        return held[low - 1] if low else None
    finally:
        await reader.close()


async def _anchors(
    reader: Reader, log: TopicPartition, topic: str, last_offset: int
) -> list[Anchor]:
    """Of this topic, by offset, since the chain began or began anew."""
    bounds = await reader.bounds(log)
    found: dict[int, Anchor] = {}
    for window in windows(last_offset + 1, bounds.start_offset):
        increments = await _increments(reader, log, window)
        begun = [index for index, each in enumerate(increments) if each.begins_anew]
        for increment in increments[begun[-1] :] if begun else increments:
            anchor = increment.anchors.get(topic)
            if anchor is not None:
                found[anchor.offset] = anchor
        if begun:
            break
    return [found[offset] for offset in sorted(found)]


async def _increments(reader: Reader, log: TopicPartition, window: Window) -> list[Increment]:
    """Those that can be read: one anchor less only makes the answer more careful."""
    increments: list[Increment] = []
    async for records in reader.read(log, window.start_offset, window.end_offset):
        for record in records:
            value = record.value or b""
            if kind_of(value) is not Kind.INCREMENT:
                continue
            try:
                increments.append(decode_as(Increment, value, log, record.offset))
            except SnapreplayError:
                continue
    return increments

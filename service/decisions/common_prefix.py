"""The part of an input that still is the log that was processed: every increment keeps the last record of its
batch."""

from __future__ import annotations

from snapreplay.app.ranges import Anchor, anchor_of
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.search import SearchWindow, windows
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.place import decode_as

MOVED_OFFSETS_MAX = 100_000
"""How far from its old offset a record is looked for. A copy by a tool lacks markers and what was trimmed."""


async def newest_common(context: Context, topic: str, last_offset: int) -> Anchor | None:
    """Find the last anchor, of the increments up to `last_offset`, whose record the input still holds; None when it
    holds none of them: then it is another log from its start.

    A log that was cut and grew again agrees up to the cut; one that was created anew agrees nowhere.
    """
    async with reading(context.cluster) as reader:
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


async def moved_to(context: Context, topic: str, anchor: Anchor) -> int | None:
    """Return the offset at which the input now holds the record of this anchor, if it lies near its old one.
    Timestamp and hash are those of the anchor."""
    partition = TopicPartition(topic, context.partition)
    async with reading(context.cluster) as reader:
        start_offset, end_offset = await reader.bounds(partition)
        first = max(start_offset, anchor.offset - MOVED_OFFSETS_MAX)
        last = min(end_offset, anchor.offset + MOVED_OFFSETS_MAX)
        found = None
        if first < last:
            async for records in reader.read(partition, first, last):
                for record in records:
                    here = anchor_of(record)
                    if (here.timestamp_ms, here.xxh64) == (anchor.timestamp_ms, anchor.xxh64):
                        found = record.offset
    return found


async def _anchors(
    reader: Reader, log: TopicPartition, topic: str, last_offset: int
) -> list[Anchor]:
    """Return this topic's anchors by offset, since the chain began or an operator began a new one. An owner that
    wrote its memory went on in the same log: what it had committed before counts."""
    bounds = await reader.bounds(log)
    found: dict[int, Anchor] = {}
    for window in windows(last_offset + 1, bounds.start_offset):
        increments = await _increments(reader, log, window)
        begun = [index for index, each in enumerate(increments) if _is_cut(each)]
        for increment in increments[begun[-1] :] if begun else increments:
            anchor = increment.anchors.get(topic)
            if anchor is not None:
                found[anchor.offset] = anchor
        if begun:
            break
    return [found[offset] for offset in sorted(found)]


def _is_cut(increment: Increment) -> bool:
    return increment.begins_anew and not increment.begun_by_owner


async def _increments(reader: Reader, log: TopicPartition, window: SearchWindow) -> list[Increment]:
    """Read the increments that are readable: a missing anchor only makes the answer more careful."""
    increments: list[Increment] = []
    async for records in reader.read(log, window.start_offset, window.end_offset):
        for record in records:
            value = record.value or b""
            if kind_of(value) is not RecordKind.INCREMENT:
                continue
            try:
                increments.append(decode_as(Increment, value, log, record.offset))
            except SnapreplayError:
                continue
    return increments

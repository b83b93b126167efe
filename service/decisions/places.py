"""Where in an input an accepted state resumes, what this means for the records around it, and which part of the input
is still the log that was processed. `position`: of that state; `reached`: how far the input had been processed, None
when no increment is left that says so."""

from __future__ import annotations

from snapreplay.app.ranges import Anchor, anchor_of
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.search import SearchWindow, windows
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.reading import decode_as

AGAIN = "processed again, outputs written a second time"
NO_EFFECT = "their outputs stay, their effect on the state is lost"


def same_log(topic: str, position: int, reached: int | None, start_offset: int) -> tuple[int, str]:
    """Place the state in an input that is the log which was processed. Returns the offset to resume at, and a sentence;
    "" when nothing is lost, skipped or repeated."""
    begin = max(position, start_offset)
    parts = []
    if reached is not None and reached < position:  # the state knows more than the log that is left
        reached = None
    if reached is None:
        if position < begin:
            parts.append(
                f"offsets {position} to {begin} are gone: those that were processed keep their outputs and have"
                " no effect on the state, the others are never processed"
            )
        parts.append(f"what was processed from there on is {AGAIN}")
    else:
        deleted_end = min(begin, reached)
        if position < deleted_end:
            parts.append(f"offsets {position} to {deleted_end} are gone: {NO_EFFECT}")
        if begin < reached:
            parts.append(f"offsets {begin} to {reached} are {AGAIN}")
        if reached < begin:
            parts.append(f"offsets {reached} to {begin} are never processed")
    return begin, f"{topic}: resumes at offset {begin}; {'; '.join(parts)}" if parts else ""


def other_log(topic: str, position: int, reached: int, start_offset: int, common_end: int | None) -> tuple[int, str]:
    """Place the state in an input that was replaced or cut: up to `common_end` it still holds what was processed;
    None: nothing at its offset."""
    reached = max(reached, position)  # the state may know more than the log that is left
    lost = f"offsets {position} to {reached}" if position < reached else ""
    if common_end is None:
        old = f"{lost} of the old log have no effect on the state; " if lost else ""
        return start_offset, (
            f"{topic}: holds none of the records that were processed at their offsets: it is read as a new log from its"
            f" start, offset {start_offset}; {old}the old log's records from offset {reached} on are never processed,"
            f" if they are not in the new one; a record that was processed and is in the new log, too, is {AGAIN}"
        )
    begin = max(min(common_end, position), start_offset)
    parts = []
    if position < begin:
        parts.append(f"offsets {position} to {begin} are gone: {NO_EFFECT}")
    if begin < common_end:
        parts.append(f"offsets {begin} to {common_end} are {AGAIN}")
    held_end = max(common_end, position)
    if common_end < position:
        parts.append(f"offsets {common_end} to {position} of the old log keep their effect on the state")
    if held_end < reached:
        parts.append(f"offsets {held_end} to {reached} of the old log are gone: {NO_EFFECT}")
    parts.append(f"records of offsets {common_end} to {reached} that are still the same are processed again")
    return begin, (
        f"{topic}: holds the records that were processed up to offset {common_end}, and others after it: resumes"
        f" at offset {begin}; {'; '.join(parts)}"
    )


async def newest_common(context: Context, topic: str, last_offset: int) -> Anchor | None:
    """Find the last anchor, of the increments up to `last_offset`, whose record the input still holds; None: none. A
    log that was cut and grew again agrees up to the cut; a log that was created again agrees nowhere."""
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


async def _anchors(reader: Reader, log: TopicPartition, topic: str, last_offset: int) -> list[Anchor]:
    """Return this topic's anchors by offset, since the chain began or an operator began a new one."""
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
    return increment.begins_chain and increment.is_accepted


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

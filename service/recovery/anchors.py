"""Compares the log of an input with its anchors: the batch directly below a position, and the last record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from snapreplay.app.ranges import Anchor, PositionAnchor, anchor_of
from snapreplay.service.core.chain import ReadPosition
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.ports import Reader, TopicPartition


class Match(Enum):
    """The relation of what the log holds now to the anchor."""

    SAME = "same"
    OTHER = "other"
    NONE = "none"  # there never was an anchor, or its record was trimmed or compacted away


@dataclass(frozen=True)
class Below:
    """The answer of the log about a position's anchor. `anchor`: what lies there now, or what lay there."""

    match: Match
    anchor: PositionAnchor | None = None
    rewritten: bool = False


async def was_cut(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> bool:
    """Say whether the log, which has the same topic id, holds other things below the position than it did."""
    return (await below_or_copied(reader, partition, read_position)).match is Match.OTHER


async def below_or_copied(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> Below:
    """Compare as `below_position`. Another batch that ends with the same last record is a copy of what was there."""
    record = read_position.record
    below = await below_position(reader, partition, read_position)
    if below.match is not Match.OTHER or record is None or not read_position.is_behind_record:
        return below
    match, _ = await record_at_anchor(reader, partition, record)
    return replace(below, match=match, rewritten=True) if match is Match.SAME else below


async def below_position(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> Below:
    """Compare what lies below the position, in the topic that it was read from.

    If the batch is gone, or the log cleaner has written it again, the broker may still know how far its leader epoch
    reached. What the batch holds says whether it was cleaned: the topic's cleanup.policy may be another one by now.
    """
    batch = await reader.batch_below(partition, read_position.position) if read_position.position else None
    found = batch.anchor if batch is not None else None
    expected = read_position.below
    if expected is None:
        return Below(Match.NONE, found)
    if found == expected:
        return Below(Match.SAME, found)
    if batch is not None and not (batch.is_cleaned and batch.anchor.leader_epoch == expected.leader_epoch):
        return Below(Match.OTHER, found)
    end = await reader.epoch_end(partition, expected.leader_epoch)
    cut = end is not None and end.end_offset < read_position.position
    return Below(Match.OTHER if cut else Match.NONE, found or expected)


async def goes_on(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> bool:
    """Say whether the log knows the leader epoch below the position, and it reaches the position.

    An older disk may hold a batch of an epoch that its leader has forgotten: a fetch that names it gives nothing.
    """
    expected = read_position.below
    if expected is None:
        return False
    end = await reader.epoch_end(partition, expected.leader_epoch)
    return end is not None and end.leader_epoch == expected.leader_epoch and end.end_offset >= read_position.position


async def record_at_anchor(reader: Reader, partition: TopicPartition, anchor: Anchor) -> tuple[Match, Anchor | None]:
    """Compare the record; a trimmed or compacted anchor proves nothing either way; only another record there does."""
    try:
        record = await reader.read_at(partition, anchor.offset)
    except OffsetTrimmed:
        return Match.NONE, None
    if record is None:
        return Match.NONE, None
    found = anchor_of(record)
    return (Match.SAME if found == anchor else Match.OTHER), found

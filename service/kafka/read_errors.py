"""The errors of a partition that cannot be read on, with the facts."""

from __future__ import annotations

from snapreplay.app.ways import MODULE
from snapreplay.service.core.kafka_errors import (
    OffsetBeyondEnd,
    OffsetTrimmed,
    ReadStalled,
    TopicGone,
)
from snapreplay.service.ports import Bounds, TopicPartition


def trimmed(partition: TopicPartition, offset: int, bounds: Bounds) -> OffsetTrimmed:
    return OffsetTrimmed(
        f"offset {offset} of {partition} is gone: the log starts at {bounds.start_offset}",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        **bounds._asdict(),
    )


def beyond_end(partition: TopicPartition, offset: int, bounds: Bounds) -> OffsetBeyondEnd:
    return OffsetBeyondEnd(
        f"offset {offset} of {partition} is above its end"
        f" {bounds.end_offset}: the leader is stale, or the log is shorter than it was",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        **bounds._asdict(),
    )


def gone(partition: TopicPartition, topic_id: str) -> TopicGone:
    which = f"topic {partition.topic} with the id {topic_id}" if topic_id else str(partition)
    return TopicGone(f"{which} does not exist any more", topic=partition.topic, topic_id=topic_id)


def stalled(
    partition: TopicPartition, position: int, end_offset: int, seconds: float
) -> ReadStalled:
    return ReadStalled(
        f"reading {partition} has not moved from offset {position} of {end_offset} for {seconds:.0f} s",
        hint=f"`snapreplay doctor {MODULE}` shows which partitions have no leader",
        topic=partition.topic,
        partition=partition.partition,
        position=position,
        end_offset=end_offset,
    )

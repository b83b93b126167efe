"""The place where a new app begins in its inputs, when no position is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from snapreplay.app.ranges import Anchor, PositionAnchor
from snapreplay.errors import UsageError
from snapreplay.service.ports import TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import reading

StartFrom = Literal["earliest", "latest"]


def check_start(start: object) -> None:
    """Raise UsageError if it is not a `StartFrom`. A typo must not skip the records that are in the inputs."""
    if start not in get_args(StartFrom):
        raise UsageError(
            f"start={start!r} is not a valid value",
            hint=f"use one of {', '.join(map(repr, get_args(StartFrom)))}",
        )


@dataclass(frozen=True)
class Places:
    """The places to begin at in each input.

    Attributes:
        positions: input → the next offset.
        below: input → what its log holds directly below that offset, as far as anything is there.
        anchors: input → the last record before that offset, if it was processed.
    """

    positions: dict[str, int]
    below: dict[str, PositionAnchor]
    anchors: dict[str, Anchor]


async def start_offsets(context: Context, start: StartFrom) -> Places:
    """Return where to begin in each input of this partition, as its log is now: the log's start, or its last stable
    offset.

    Raises:
        Unreachable: the cluster did not answer.
    """
    positions, below = dict[str, int](), dict[str, PositionAnchor]()
    async with reading(context.cluster) as reader:
        for name in context.input_names:
            partition = TopicPartition(name, context.partition)
            bounds = await reader.bounds(partition)
            positions[name] = bounds.start_offset if start == "earliest" else bounds.end_offset
            if positions[name] > bounds.start_offset:
                anchor = await reader.anchor_at(partition, positions[name])
                if anchor is not None:
                    below[name] = anchor
    return Places(positions, below, {})

"""Where a new app begins in its inputs, when no position is recorded."""

from __future__ import annotations

from typing import Literal, get_args

from snapreplay.errors import UsageError
from snapreplay.service.ports import TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import reading

StartFrom = Literal["earliest", "latest"]


def check_start(start: object) -> None:
    """
    Raises:
        UsageError: it is not a `StartFrom`. A typo must not skip the records that are in the inputs.
    """
    if start not in get_args(StartFrom):
        raise UsageError(
            f"start={start!r} is not a valid value",
            hint=f"use one of {', '.join(map(repr, get_args(StartFrom)))}",
        )


async def start_offsets(context: Context, start: StartFrom) -> dict[str, int]:
    """Per input of this partition, as its log is now: the log's start, or its last stable offset.

    Raises:
        Unreachable: the cluster did not answer.
    """
    async with reading(context.cluster) as reader:
        bounds = {
            name: await reader.bounds(TopicPartition(name, context.partition))
            for name in context.input_names
        }
    return {
        name: each.start_offset if start == "earliest" else each.end_offset
        for name, each in bounds.items()
    }

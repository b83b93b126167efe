"""Readers that are closed at the end of a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from snapreplay.app.record import InputRecord
from snapreplay.service.ports import NO_IDS, Cluster, Reader, TopicPartition


@asynccontextmanager
async def reading(
    cluster: Cluster,
    *,
    read_committed: bool = True,
    large: bool = False,
    topic_ids: Mapping[str, str] = NO_IDS,
) -> AsyncIterator[Reader]:
    """Provide a reader for the length of the block; `Cluster.reader` says what the arguments mean."""
    reader = await cluster.reader(read_committed=read_committed, large=large, topic_ids=topic_ids)
    try:
        yield reader
    finally:
        await reader.close()


GROWTH = 8


async def newest(reader: Reader, partition: TopicPartition, count: int) -> list[InputRecord]:
    """Return the last `count` records in order, fewer if there are fewer. Reads windows that grow backwards from the
    end.

    Raises:
        Unreachable, ReadStalled, TopicGone: as `ports.Reader`.
    """
    start, end = await reader.bounds(partition)
    found: list[InputRecord] = []
    window_end, size = end, count
    while len(found) < count and window_end > start:
        window_start = max(start, window_end - size)
        slices = [each async for each in reader.read(partition, window_start, window_end)]
        found = [record for each in slices for record in each] + found
        window_end, size = window_start, size * GROWTH
    return found[max(0, len(found) - count) :]

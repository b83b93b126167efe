"""Readers that are closed at the end of a block, and patience with a log that seems too short: the broker that says so
may be a leader that its peers have replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from snapreplay.app.record import InputRecord
from snapreplay.service.core.search import windows
from snapreplay.service.ports import NO_IDS, Bounds, Cluster, Reader, TopicFacts, TopicPartition

LOOK_SECONDS = 0.01


@asynccontextmanager
async def reading(
    cluster: Cluster, *, read_committed: bool = True, large: bool = False, topic_ids: Mapping[str, str] = NO_IDS
) -> AsyncIterator[Reader]:
    """Provide a reader for the length of the block; `Cluster.reader` says what the arguments mean."""
    reader = await cluster.reader(read_committed=read_committed, large=large, topic_ids=topic_ids)
    try:
        yield reader
    finally:
        await reader.close()


async def decided_bounds(cluster: Cluster, partition: TopicPartition) -> Bounds:
    """Return the bounds of what is committed, once every transaction that has records there now is decided. A commit is
    answered before its marker is in the log of each partition."""
    async with reading(cluster) as committed, reading(cluster, read_committed=False) as every:
        end = (await every.bounds(partition)).end_offset
        while (bounds := await committed.bounds(partition)).end_offset < end:  # noqa: ASYNC110 - a log has no events
            await asyncio.sleep(LOOK_SECONDS)  # between two looks
        return bounds


async def holds_records(reader: Reader, topic: TopicFacts) -> bool:
    """Say whether anything is in a topic; a transaction marker counts."""
    bounds = await reader.bounds_of([TopicPartition(topic.name, number) for number in range(topic.partition_count)])
    return any(start < end for start, end in bounds.values())


async def newest(reader: Reader, partition: TopicPartition, count: int) -> list[InputRecord]:
    """Return the last `count` records in order, fewer if there are fewer."""
    start, end = await reader.bounds(partition)
    found: list[InputRecord] = []
    for window in windows(end, start):
        slices = [each async for each in reader.read(partition, window.start_offset, window.end_offset)]
        found = [record for each in slices for record in each] + found
        if len(found) >= count:
            break
    return found[max(0, len(found) - count) :]


# A leader cut off from its peers was believed for up to 11 s after healing (measured).
PATIENCE_SECONDS = 15.0
ASK_AGAIN_SECONDS = 0.5
AGREED_TIMES = 3  # all brokers, half a second apart: an election may be under way


def may_be_stale(since: float) -> bool:
    """Say whether what was asked `since` then, by the loop's clock, may have been answered by a stale leader."""
    return asyncio.get_running_loop().time() - since < PATIENCE_SECONDS


OnWaiting = Callable[[str], None]
"""Called with a sentence without its full stop."""


class Patience:
    """The time that a log that seems too short is asked for again, with new clients. Begins when it is made."""

    def __init__(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        self._agreed = 0

    @property
    def left_seconds(self) -> float:
        """Negative once it is over."""
        return self._deadline - asyncio.get_running_loop().time()

    @property
    def is_over(self) -> bool:
        """No broker is expected to know more: all agree, or the time is up."""
        return self.left_seconds < 0 or self._agreed >= AGREED_TIMES

    async def ask_all(self, cluster: Cluster, log: TopicPartition, end_offset: int) -> None:
        """Ask all brokers whether the log ends before `end_offset`."""
        known = await cluster.agreed_end_offset(log)
        is_shorter = known is not None and known < end_offset
        self._agreed = self._agreed + 1 if is_shorter else 0

    async def pause(self) -> None:
        """Wait until the next try."""
        await asyncio.sleep(ASK_AGAIN_SECONDS)

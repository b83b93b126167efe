"""Kafka for programs without an event loop, such as a task of Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from snapreplay.app.record import InputRecord
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.ports import Bounds, TopicPartition

T = TypeVar("T")


class BlockingReader:
    """Reads partitions; a context manager with an event loop of its own. Not to be used inside a running one.

    Errors are those of `ports.Reader`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._readers: dict[bool, KafkaReader] = {}

    def __enter__(self) -> BlockingReader:
        self._runner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for reader in self._readers.values():
                self._wait(reader.close())
        finally:
            self._runner.__exit__(kind, error, trace)

    def partition_count(self, topic: str) -> int:
        """0 when there is no such topic."""
        facts = self._wait(self._topics(topic))
        return facts.get(topic, 0)

    def bounds(self, topic: str, partition: int, *, committed: bool) -> Bounds:
        """First offset and end; the end is the last stable offset where only `committed` records count."""
        return self._wait(
            self._reader(committed=committed).bounds(TopicPartition(topic, partition))
        )

    def read(
        self, topic: str, partition: int, start_offset: int, end_offset: int, *, committed: bool
    ) -> Iterator[Sequence[InputRecord]]:
        """As `ports.Reader.read`. One at a time for each value of `committed`."""
        place = TopicPartition(topic, partition)
        slices = self._reader(committed=committed).read(place, start_offset, end_offset)
        while (records := self._wait(_next(slices))) is not None:
            yield records

    def _reader(self, *, committed: bool) -> KafkaReader:
        if committed not in self._readers:
            cluster = KafkaCluster(self._settings)
            opened = cluster.reader(read_committed=committed, large=not committed)
            self._readers[committed] = self._wait(opened)
        return self._readers[committed]

    async def _topics(self, topic: str) -> dict[str, int]:
        facts = await KafkaCluster(self._settings).topics([topic])
        return {name: each.partition_count for name, each in facts.items()}

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


async def _next(slices: AsyncIterator[Sequence[InputRecord]]) -> Sequence[InputRecord] | None:
    return await anext(slices, None)

"""Kafka for programs without an event loop, such as a task of Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from snapreplay.app.record import InputRecord
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaAppender
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.loop_thread import LoopThread
from snapreplay.service.ports import Bounds, LogRecord, TopicPartition
from snapreplay.snapshots.format.envelope import Headers

T = TypeVar("T")


class BlockingReader:
    """Reads partitions; a context manager with a thread of its own, so that it works inside a running event loop, too.

    Errors are those of `ports.Reader`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = LoopThread("snapreplay-reader")
        self._all: list[KafkaReader] = []
        self._idle: dict[bool, list[KafkaReader]] = {True: [], False: []}

    def __enter__(self) -> Self:
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait(self._close())
        finally:
            self._loop.stop()

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions, 0 when there is no such topic."""
        return self._wait(KafkaAdmin(self._settings).partition_count(topic))

    def bounds(self, topic: str, partition: int, *, committed: bool) -> Bounds:
        """Return first offset and end; the end is the last stable offset where only `committed` records count."""
        with self._reader(committed=committed) as reader:
            return self._wait(reader.bounds(TopicPartition(topic, partition)))

    def read(
        self, topic: str, partition: int, start_offset: int, end_offset: int, *, committed: bool
    ) -> Iterator[Sequence[InputRecord]]:
        """Read as `ports.Reader.read` does. Several may be under way."""
        with self._reader(committed=committed) as reader:
            slices = reader.read(TopicPartition(topic, partition), start_offset, end_offset)
            while (records := self._wait(_next(slices))) is not None:
                yield records

    @contextmanager
    def _reader(self, *, committed: bool) -> Iterator[KafkaReader]:
        """Lend a reader for exclusive use: a reader follows one partition at a time."""
        idle = self._idle[committed]
        if not idle:
            cluster = KafkaCluster(self._settings)
            idle.append(self._wait(cluster.reader(read_committed=committed, large=not committed)))
            self._all.append(idle[-1])
        reader = idle.pop()
        try:
            yield reader
        finally:
            idle.append(reader)

    async def _close(self) -> None:
        for reader in self._all:
            await reader.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.submit(work).result()


class BlockingClient(BlockingReader):
    """A reader that also appends. Errors of `append` are those of `ports.Appender`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._appender: KafkaAppender | None = None

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Name → id, of those that exist; empty where the cluster has none."""
        return self._wait(KafkaAdmin(self._settings).topic_ids(list(topics)))

    def append(self, topic: str, partition: int, value: bytes, headers: Headers) -> int:
        """Append; return the record's offset, once all replicas have it; idempotent, outside any transaction."""
        return self._wait(self._append(LogRecord(topic, value, headers=headers), partition))

    async def _append(self, record: LogRecord, partition: int) -> int:
        if self._appender is None:
            self._appender = await KafkaCluster(self._settings).appender()
        return await self._appender.append(record, partition)

    async def _close(self) -> None:
        if self._appender is not None:
            await self._appender.close()
        await super()._close()


async def _next(slices: AsyncIterator[Sequence[InputRecord]]) -> Sequence[InputRecord] | None:
    return await anext(slices, None)

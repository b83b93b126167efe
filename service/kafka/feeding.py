"""Producers that own no partition: of snapshots, and of `feed` and `redrive`.

With a transactional id all records of a `feed` count or none does, and the start fences predecessors.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import groupby

from snapreplay.app.record import Output
from snapreplay.counted import some
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import CommitInDoubt, RefusedRecord
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.service.kafka.batching import CODECS, Batches, Place, TopicShape
from snapreplay.service.kafka.config import batch_bytes_max
from snapreplay.service.kafka.connection import CLOSE_S
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, client_error, commit_error, translated
from snapreplay.service.kafka.shared import Shared
from snapreplay.service.kafka.sink import BatchesRefused, Sink
from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.times import NO_TIMESTAMP

QUEUED = 1000
"""Records that are written together, within one deadline."""
_NO_LIMIT = 2**31
"""The broker says what is too large."""


class _Unowned:
    def __init__(
        self, settings: Settings, shared: Shared | None = None, *, transactional_id: str | None = None
    ) -> None:
        self._settings = settings
        self._sink = Sink(settings, shared or Shared(settings), transactional_id)
        self._transactional = transactional_id is not None
        # Chunks of snapshots are compressed already, and what is fed is little.
        self._codec = CODECS[settings.kafka.get("compression.type") if self._transactional else None]
        self._shapes: dict[str, TopicShape] = {}

    async def _start(self, doing: str, within_ms: int, name: str = "") -> None:
        asked = Asked(self._settings, "IdempotentWrite", name)
        async with translated(doing, asked, give_up=self.close), self._sink.within(within_ms / 1000):
            await self._sink.start()

    async def close(self) -> None:
        """Close it; bounded, idempotent, never raises."""
        await self._sink.close()

    async def _shape(self, topic: str) -> TopicShape:
        if topic not in self._shapes:
            count = await self._sink.partition_count(topic)
            self._shapes[topic] = TopicShape(count, batch_bytes_max(self._settings), _NO_LIMIT)
        return self._shapes[topic]

    def _batches(self) -> Batches:
        return Batches(self._shapes, self._codec, transactional=self._transactional)


class KafkaAppender(_Unowned):
    """An appender, `ports.Appender`: idempotent, outside any transaction: a long snapshot holds back no reader. Call
    `start` first; one task at a time."""

    async def start(self) -> None:
        """Start it; after Unreachable, within timeouts.commit_ms, it is closed."""
        await self._start("starting a snapshot's producer", self._settings.timeouts.commit_ms)

    async def append(self, record: LogRecord, partition: int) -> int:
        """Append; after an error only `close` is left to call."""
        try:
            async with self._sink.within(self._settings.timeouts.commit_ms / 1000):
                offset = await self._append(record, partition)
        except (*CLIENT_ERRORS, BatchesRefused) as error:
            cause = next(iter(error.errors.values())) if isinstance(error, BatchesRefused) else error
            refused = commit_error(cause, "of a snapshot", record.topic)
            if isinstance(refused, RefusedRecord):
                raise refused from cause
            asked = Asked(self._settings, "Write", record.topic)
            doing = f"appending to {record.topic}-{partition}"
            raise client_error(cause, doing, asked) from cause
        if offset < 0:
            raise RefusedRecord(
                f"a record for {record.topic}-{partition} was stored, but its offset is unknown: the"
                " snapshot is abandoned, and the next one starts from the beginning",
                topic=record.topic,
                error="duplicate sequence",
            )
        return offset

    async def _append(self, record: LogRecord, partition: int) -> int:
        await self._shape(record.topic)
        batches = self._batches()
        place = batches.add(record, partition, record.timestamp_ms)
        return (await self._sink.write(batches.runs))[place.target][0]


class KafkaFeeder(_Unowned):
    """A feeder for topics; call `start` first; one task at a time. After an error only `close` is left to call."""

    def __init__(self, settings: Settings, transactional_id: str | None = None) -> None:
        super().__init__(settings, transactional_id=transactional_id)
        self._name = transactional_id or "a plain producer"

    async def start(self) -> None:
        """Start; after Unreachable, NotAuthenticated or NotAuthorized, within timeouts.fence_ms, it is closed."""
        await self._start("starting a producer", self._settings.timeouts.fence_ms, self._name)

    async def feed(self, outputs: Sequence[Output]) -> list[tuple[TopicPartition, int]]:
        """Write these records, in order. A record without a partition goes where Kafka's default partitioner sends its
        key.

        Returns:
            Partition and offset of each record.

        Raises:
            RefusedRecord, RefusedTopic: the broker refuses one. In a transaction none was written.
            Fenced: another process uses the transactional id.
            CommitInDoubt, Unreachable, NotAuthorized.
        """
        try:
            places = await self._send(outputs)
        except (*CLIENT_ERRORS, SnapreplayError) as error:
            await self._give_up()
            raise commit_error(error, self._name, settings=self._settings) from error
        except BaseException:
            await self._give_up()
            raise
        if self._transactional and outputs:
            try:
                async with self._in_time("the transaction"):
                    await self._sink.end(commit=True)
            except CLIENT_ERRORS as error:
                raise commit_error(error, self._name, settings=self._settings) from error
        return places

    @asynccontextmanager
    async def _in_time(self, what: str) -> AsyncIterator[None]:
        """Limit the block to timeouts.commit_ms. The time for which a quota makes the brokers wait does not count."""
        timeout_ms = self._settings.timeouts.commit_ms
        try:
            async with self._sink.within(timeout_ms / 1000):
                yield
        except TimeoutError as error:
            why = f"; before it: {self._sink.trouble}" if self._sink.trouble else ""
            raise CommitInDoubt(f"{what} was not acknowledged within timeouts.commit_ms={timeout_ms}{why}") from error

    async def _give_up(self) -> None:
        """Abort, so that readers need not wait for the transaction's timeout; then send nothing more."""
        if self._transactional:
            with suppress(*CLIENT_ERRORS):
                async with asyncio.timeout(CLOSE_S):
                    await self._sink.end(commit=False)
        await self.close()

    async def _send(self, outputs: Sequence[Output]) -> list[tuple[TopicPartition, int]]:
        """Write, and look at each answer."""
        places: list[tuple[TopicPartition, int]] = []
        # A batch takes the first timestamp that it gets for that of the records without one before it.
        for _, group in groupby(outputs, lambda each: each.timestamp_ms == NO_TIMESTAMP):
            alike = list(group)
            for start in range(0, len(alike), QUEUED):
                queued = alike[start : start + QUEUED]
                async with self._in_time(f"a record for {some(sorted({each.topic for each in queued}))}"):
                    places += await self._send_together(queued)
        return places

    async def _send_together(self, outputs: Sequence[Output]) -> list[tuple[TopicPartition, int]]:
        batches = self._batches()
        places: list[Place] = []
        for output in outputs:
            partition = await self._partition(output)
            places.append(batches.add(output, partition, output.timestamp_ms))
        runs = batches.runs
        if self._transactional:
            await self._sink.begin(runs)
        try:
            bases = await self._sink.write(runs)
        except BatchesRefused as refused:
            target, error = next(iter(refused.errors.items()))
            raise commit_error(error, self._name, target.topic, self._settings) from error
        for target, offsets in bases.items():
            if min(offsets) < 0:
                raise CommitInDoubt(f"a record for {target} was answered as a duplicate, without its offset")
        return [(target, bases[target][batch] + index) for target, batch, index in places]

    async def _partition(self, output: Output) -> int:
        """Return the partition of a record; one without a key goes to any that has a leader."""
        shape = await self._shape(output.topic)
        if output.partition is not None:
            return output.partition
        if output.key is not None:
            return murmur_positive(output.key) % shape.partition_count
        return random.choice(self._sink.available(output.topic) or range(shape.partition_count))

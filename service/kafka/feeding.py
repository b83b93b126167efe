"""Producers that own no partition: of snapshots, and of `feed` and `redrive`.

With a transactional id all records of a `feed` count or none does, and the start fences predecessors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

from aiokafka.errors import KafkaTimeoutError

from snapreplay.app.record import Output
from snapreplay.counted import some
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import CommitInDoubt, RefusedRecord
from snapreplay.service.kafka.clients import producer_client
from snapreplay.service.kafka.config import producer_arguments
from snapreplay.service.kafka.entry import entered
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, client_error, commit_error, translated
from snapreplay.service.kafka.shared import Shared
from snapreplay.service.kafka.shutdown import CLOSE_S, bounded, cut_producer
from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.times import NO_TIMESTAMP

QUEUED = 1000
"""Records under way at a time: the client keeps a future for each."""


class _Unowned:
    def __init__(
        self, settings: Settings, shared: Shared | None = None, *, transactional_id: str | None = None
    ) -> None:
        self._settings = settings
        self._producer = producer_client(producer_arguments(settings, transactional_id), shared)
        self._healthy = False
        self._closed = False

    async def _start(self, doing: str, within_ms: int, name: str = "") -> None:
        asked = Asked(self._settings, "IdempotentWrite", name)
        async with translated(doing, asked, within_s=within_ms / 1000, give_up=self.close):
            await entered(self._producer.start(), self._settings)
        self._healthy = True

    async def close(self) -> None:
        """Close it; bounded, idempotent, never raises. Flushes only what is healthy."""
        if self._closed:
            return
        self._closed = True
        if not (self._healthy and await bounded(self._producer.stop(), CLOSE_S)):
            await cut_producer(self._producer)
        self._healthy = False


class KafkaAppender(_Unowned):
    """An appender, `ports.Appender`: idempotent, outside any transaction: a long snapshot holds back no reader. Call
    `start` first; one task at a time."""

    async def start(self) -> None:
        """Start it; after Unreachable, within timeouts.commit_ms, it is closed."""
        await self._start("starting a snapshot's producer", self._settings.timeouts.commit_ms)

    async def append(self, record: LogRecord, partition: int) -> int:
        """Append; after an error only `close` is left to call."""
        try:
            async with self._producer.client.writing(self._settings.timeouts.commit_ms / 1000):
                offset = await self._append(record, partition)
        except CLIENT_ERRORS as error:
            self._healthy = False
            refused = commit_error(error, "of a snapshot", record.topic)
            if isinstance(refused, RefusedRecord):
                raise refused from error
            asked = Asked(self._settings, "Write", record.topic)
            doing = f"appending to {record.topic}-{partition}"
            raise client_error(error, doing, asked) from error
        except BaseException:
            self._healthy = False
            raise
        if offset < 0:
            self._healthy = False
            raise RefusedRecord(
                f"a record for {record.topic}-{partition} was stored, but its offset is unknown: the"
                " snapshot is abandoned, and the next one starts from the beginning",
                topic=record.topic,
                error="duplicate sequence",
            )
        return offset

    async def _append(self, record: LogRecord, partition: int) -> int:
        batch = self._producer.create_batch()
        batch.append(timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers))
        sent = await self._producer.send_batch(batch, record.topic, partition=partition)
        answer = await sent
        return int(answer.offset)


class KafkaFeeder(_Unowned):
    """A feeder for topics; call `start` first; one task at a time. After an error only `close` is left to call."""

    def __init__(self, settings: Settings, transactional_id: str | None = None) -> None:
        super().__init__(settings, transactional_id=transactional_id)
        self._name = transactional_id or "a plain producer"
        self._transactional = transactional_id is not None

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
            if self._transactional:
                await self._producer.begin_transaction()
            places = await self._send(outputs)
            if self._transactional:
                async with self._in_time("the transaction"):
                    await self._producer.commit_transaction()
        except (*CLIENT_ERRORS, SnapreplayError) as error:
            await self._give_up()
            raise commit_error(error, self._name, settings=self._settings) from error
        except BaseException:
            await self._give_up()
            raise
        return places

    @asynccontextmanager
    async def _in_time(self, what: str) -> AsyncIterator[None]:
        """Limit the block to timeouts.commit_ms. The time for which a quota makes the brokers wait does not count."""
        timeout_ms = self._settings.timeouts.commit_ms
        try:
            async with self._producer.client.writing(timeout_ms / 1000):
                yield
        except TimeoutError as error:
            raise CommitInDoubt(f"{what} was not acknowledged within timeouts.commit_ms={timeout_ms}") from error

    async def _give_up(self) -> None:
        """Abort, so that readers need not wait for the transaction's timeout; then send nothing more."""
        if self._transactional and self._healthy:
            await bounded(self._producer.abort_transaction(), CLOSE_S)
        self._healthy = False

    async def _send(self, outputs: Sequence[Output]) -> list[tuple[TopicPartition, int]]:
        """Send and look at each answer, because the client commits a transaction with missing records."""
        places: list[tuple[TopicPartition, int]] = []
        # The client's batch takes the first timestamp that it gets for that of the records without one before it.
        for _, group in groupby(outputs, lambda each: each.timestamp_ms == NO_TIMESTAMP):
            places += await self._send_alike(list(group))
        return places

    async def _send_alike(self, outputs: Sequence[Output]) -> list[tuple[TopicPartition, int]]:
        places: list[tuple[TopicPartition, int]] = []
        for start in range(0, len(outputs), QUEUED):
            queued = outputs[start : start + QUEUED]
            async with self._in_time(f"a record for {some(sorted({each.topic for each in queued}))}"):
                sent = [await self._begin(output) for output in queued]
                await asyncio.wait(sent)
            places += [_place(*pair, self._name) for pair in zip(queued, sent, strict=True)]
        return places

    async def _begin(self, output: Output) -> asyncio.Future[Any]:
        while True:
            try:
                future: asyncio.Future[Any] = await self._producer.send(
                    output.topic,
                    key=output.key,
                    value=output.value,
                    partition=output.partition,
                    timestamp_ms=output.timestamp_ms,
                    headers=list(output.headers),
                )
            except KafkaTimeoutError:
                continue  # it waits behind a full batch; `_in_time` decides for how long
            except CLIENT_ERRORS as error:
                raise commit_error(error, self._name, output.topic, self._settings) from error
            future.add_done_callback(lambda done: done.cancelled() or done.exception())  # else it is logged as lost
            return future


def _place(output: Output, sent: asyncio.Future[Any], name: str) -> tuple[TopicPartition, int]:
    error = sent.exception()
    if error is not None:
        raise commit_error(error, name, output.topic) from error
    answer = sent.result()
    if answer is None or answer.offset < 0:
        raise CommitInDoubt(f"a record for {output.topic} was answered with {answer}")
    return TopicPartition(answer.topic, answer.partition), int(answer.offset)

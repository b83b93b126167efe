"""An idempotent producer outside any transaction, for full snapshots: a long snapshot holds back no reader."""

from __future__ import annotations

import asyncio

from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import RefusedRecord
from snapreplay.service.kafka.clients import producer_client
from snapreplay.service.kafka.config import producer_arguments
from snapreplay.service.kafka.entry import entered
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, client_error, commit_error
from snapreplay.service.kafka.shutdown import CLOSE_S, bounded, cut_producer
from snapreplay.service.ports import LogRecord


class KafkaAppender:
    """An appender, `ports.Appender`. Call `start` first; one task at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._deadline_s = settings.timeouts.commit_ms / 1000
        self._producer = producer_client(producer_arguments(settings, None))
        self._healthy = False
        self._closed = False

    async def start(self) -> None:
        """Start it; after Unreachable, within timeouts.commit_ms, it is closed."""
        try:
            async with asyncio.timeout(self._deadline_s):
                await entered(self._producer.start(), self._settings)
        except CLIENT_ERRORS as error:
            await self.close()
            asked = Asked(self._settings, "IdempotentWrite")
            raise client_error(error, "starting a snapshot's producer", asked) from error
        except BaseException:
            await self.close()
            raise
        self._healthy = True

    async def append(self, record: LogRecord, partition: int) -> int:
        """Append; after an error only `close` is left to call."""
        try:
            async with asyncio.timeout(self._deadline_s):
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
                " snapshot is abandoned, and the next one starts anew",
                topic=record.topic,
                error="duplicate sequence",
            )
        return offset

    async def close(self) -> None:
        """Close it; bounded, idempotent, never raises. Flushes only what is healthy."""
        if self._closed:
            return
        self._closed = True
        if not (self._healthy and await bounded(self._producer.stop(), CLOSE_S)):
            await cut_producer(self._producer)

    async def _append(self, record: LogRecord, partition: int) -> int:
        batch = self._producer.create_batch()
        batch.append(
            timestamp=None, key=record.key, value=record.value, headers=list(record.headers)
        )
        sent = await self._producer.send_batch(batch, record.topic, partition=partition)
        answer = await sent
        return int(answer.offset)

"""Reads partitions without a group: assign, seek, and done means "the position has reached the end".

An empty poll means nothing: it may be an election, a reconnect, aborted data. A client whose brokers have all
moved never finds them again, so a read without progress gets a new client, with another address first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.app.record import InputRecord
from snapreplay.app.ways import MODULE
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import (
    OffsetBeyondEnd,
    OffsetTrimmed,
    ReadStalled,
    TopicGone,
    Unreachable,
)
from snapreplay.service.kafka.clients import consumer_client
from snapreplay.service.kafka.config import consumer_arguments
from snapreplay.service.kafka.corrupt_batches import CorruptBatches
from snapreplay.service.kafka.entry import entered
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, client_error
from snapreplay.service.kafka.fetch_by_id import FetchWatch, fetch_by_id
from snapreplay.service.kafka.shutdown import close_consumer
from snapreplay.service.kafka.slim_records import slim_records
from snapreplay.service.ports import NO_IDS, Bounds, TopicPartition

SLICE_RECORDS = 5000
# A poll over nothing but markers ends by its timeout, not by reaching the end: start short.
_POLL_MS_MIN, _POLL_MS_MAX = 2, 200
# How long a broker may not know a topic that exists.
LAG_SECONDS = 5.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 5.0


class KafkaReader:
    """`ports.Reader`. `start` first."""

    def __init__(
        self,
        settings: Settings,
        *,
        read_committed: bool,
        large: bool,
        patient: bool = False,
        topic_ids: Mapping[str, str] = NO_IDS,
    ) -> None:
        self._settings = settings
        self._topic_ids = topic_ids
        self._watch = FetchWatch(topic_ids)
        self._disturbances = 0  # of earlier clients
        self._patient = patient
        self._read_committed = read_committed
        self._large = large
        self._metadata_s = settings.timeouts.metadata_ms / 1000
        self._progress_s = settings.timeouts.progress_ms / 1000
        # Longer than one request and its retry: a slow answer is no reason for a new client.
        self._patience_s = 2.5 * settings.request_timeout_ms / 1000
        self._lag_s = min(LAG_SECONDS, self._progress_s)
        self._consumer: AIOKafkaConsumer | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._closed = False
        self._damaged = CorruptBatches()

    async def start(self) -> None:
        """Connect, once, and assign what is followed.

        Raises:
            Unreachable: no broker answered.
            NotAuthenticated: access was refused.
        """
        await self._connect()

    @property
    def disturbances(self) -> int:
        """See `ports.Reader.disturbances`."""
        return self._disturbances + self._watch.disturbances

    async def bounds(self, partition: TopicPartition) -> Bounds:
        """See `ports.Reader.bounds`."""
        deadline = _now() + self._metadata_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._ask_bounds(partition)
            except Unreachable:
                if _now() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
            await self._renew()

    async def read(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[InputRecord]]:
        """See `ports.Reader.read`."""
        if start_offset >= end_offset:
            return
        await self.follow({partition: start_offset})
        position, moved_at, renewed_at = start_offset, _now(), _now()
        poll_ms = _POLL_MS_MIN
        while position < end_offset:
            records = await self._poll_patiently(partition, poll_ms)
            if records and records[-1].offset >= end_offset:
                records = [record for record in records if record.offset < end_offset]
            if records:
                yield records
            if self.position(partition) > position:
                position, moved_at, renewed_at = self.position(partition), _now(), _now()
                poll_ms = _POLL_MS_MIN
                continue
            poll_ms = min(2 * poll_ms, _POLL_MS_MAX)
            if _now() - moved_at > self._progress_s:
                raise self._stalled(partition, position, end_offset)
            if _now() - (self._watch.missing_since or _now()) > self._lag_s:
                raise self._gone(partition)
            if _now() - renewed_at > self._patience_s:
                await self._renew()
                renewed_at = _now()

    async def read_at(self, partition: TopicPartition, offset: int) -> InputRecord | None:
        """See `ports.Reader.read_at`. Also None at or beyond the end.

        Raises:
            OffsetTrimmed: below the start.
        """
        bounds = await self.bounds(partition)
        if offset < bounds.start_offset:
            raise _trimmed(partition, offset, bounds)
        if offset >= bounds.end_offset:
            return None
        found: InputRecord | None = None
        async for records in self.read(partition, offset, offset + 1):
            found = records[0]
        return found

    async def follow(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `ports.Reader.follow`."""
        if {each.topic for each in positions} != {each.topic for each in self._positions}:
            self._watch.missing_since = None
        self._positions = dict(positions)
        if self._consumer is None:
            await self._renew()
        else:
            self._assign(self._consumer)

    async def poll(
        self, records_max: int, timeout_ms: int
    ) -> Mapping[TopicPartition, Sequence[InputRecord]]:
        """See `ports.Reader.poll`."""
        consumer = await self._connected()
        try:
            if self._damaged.wary:
                return await self._poll_warily(consumer, records_max, timeout_ms)
            fetched = await consumer.getmany(timeout_ms=timeout_ms, max_records=records_max)
        except OffsetOutOfRangeError as error:
            await self._judge(error)
            return {}
        except CorruptRecordException:
            self._damaged.met()
            # At our positions: the client may have passed records that it did not return.
            await self._renew()
            return {}
        except KafkaError as error:
            raise client_error(error, "reading", Asked(self._settings, "Read")) from error
        self._check_allowed(consumer)
        for partition in self._positions:
            self._positions[partition] = await consumer.position(ClientPartition(*partition))
        return {TopicPartition(*source): records for source, records in fetched.items()}

    async def _poll_warily(
        self, consumer: AIOKafkaConsumer, records_max: int, timeout_ms: int
    ) -> Mapping[TopicPartition, Sequence[InputRecord]]:
        fetched: dict[TopicPartition, list[InputRecord]] = {}
        for partition in list(self._positions):
            wait_ms = timeout_ms
            for _ in range(records_max - sum(map(len, fetched.values()))):
                position = self._positions[partition]
                records = await self._damaged.one(consumer, partition, position, wait_ms)
                if records is None:
                    await self._renew()
                    return fetched
                self._positions[partition] = await consumer.position(ClientPartition(*partition))
                if not records:
                    break
                fetched.setdefault(partition, []).extend(records)
                wait_ms = 0
        return fetched

    def position(self, partition: TopicPartition) -> int:
        """See `ports.Reader.position`."""
        return self._positions[partition]

    def end_offset(self, partition: TopicPartition) -> int | None:
        """See `ports.Reader.end_offset`."""
        source = ClientPartition(*partition)
        if self._consumer is None:
            return None
        end: int | None = (
            self._consumer.last_stable_offset(source)
            if self._read_committed
            else self._consumer.highwater(source)
        )
        return end

    async def close(self) -> None:
        """See `ports.Reader.close`."""
        self._closed = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close_consumer(consumer)

    async def _poll_patiently(
        self, partition: TopicPartition, poll_ms: int
    ) -> Sequence[InputRecord]:
        """An absent broker only means no progress: the progress timeout decides."""
        try:
            return (await self.poll(SLICE_RECORDS, poll_ms)).get(partition, ())
        except Unreachable:
            if self._closed:
                raise
            await asyncio.sleep(_POLL_MS_MAX / 1000)
            return ()

    def _assign(self, consumer: AIOKafkaConsumer) -> None:
        """No await between assign and seek: without a position the client would wait for one for ever."""
        if not self._positions:
            return
        consumer.assign([ClientPartition(*partition) for partition in self._positions])
        for partition, offset in self._positions.items():
            consumer.seek(ClientPartition(*partition), offset)

    async def _connect(self) -> AIOKafkaConsumer:
        consumer = consumer_client(
            consumer_arguments(
                self._settings,
                read_committed=self._read_committed,
                large=self._large,
                patient=self._patient,
            )
        )
        try:
            await entered(consumer.start(), self._settings)
        except CLIENT_ERRORS as error:
            await close_consumer(consumer)
            raise client_error(error, "connecting a reader") from error
        except BaseException:
            await close_consumer(consumer)
            raise
        if self._closed:  # meanwhile, by another task
            await close_consumer(consumer)
            raise Unreachable("this reader is closed")
        self._disturbances += self._watch.disturbances + 1
        self._watch = fetch_by_id(consumer, self._topic_ids, self._watch.missing_since)
        slim_records(consumer)
        self._assign(consumer)
        self._consumer = consumer
        return consumer

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            if self._closed:
                raise Unreachable("this reader is closed")
            return await self._connect()
        return self._consumer

    async def _renew(self) -> None:
        """Connect a new client, with another address first, at the same positions. If nobody answers, the next call
        tries again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close_consumer(consumer)
        try:
            await self._connected()
        except Unreachable:
            if self._closed:
                raise

    async def _ask_bounds(self, partition: TopicPartition) -> Bounds:
        consumer = await self._connected()
        source = ClientPartition(*partition)
        try:
            # A topic the client does not know yet would cost one retry back-off (20 ms instead of 1, measured).
            await consumer._client.add_topic(partition.topic)
            self._check_allowed(consumer, partition.topic)
            start = await consumer.beginning_offsets([source])
            end = await consumer.end_offsets([source])
        except CLIENT_ERRORS as error:
            doing = f"asking for the bounds of {partition}"
            asked = Asked(self._settings, "Read", partition.topic)
            raise client_error(error, doing, asked) from error
        # Trimming between the two requests can put the start above a pinned end.
        return Bounds(min(start[source], end[source]), end[source])

    def _check_allowed(self, consumer: AIOKafkaConsumer, *topics: str) -> None:
        """The client would wait for ever for topics that it may not even see.

        Raises:
            NotAuthorized: one of these topics, or of the followed ones, is hidden.
        """
        hidden = consumer._client.cluster.unauthorized_topics
        for topic in (*topics, *(partition.topic for partition in self._positions)):
            if topic in hidden:
                error = TopicAuthorizationFailedError(topic)
                raise client_error(error, "looking for it", Asked(self._settings, "Read"))

    async def _judge(self, error: OffsetOutOfRangeError) -> None:
        """Out of range: fresh bounds show on which side. If on neither any more, seek again."""
        for source, offset in error.args[0].items():
            partition = TopicPartition(*source)
            bounds = await self.bounds(partition)
            if offset < bounds.start_offset:
                raise _trimmed(partition, offset, bounds) from error
            if offset > bounds.end_offset:
                raise OffsetBeyondEnd(
                    f"offset {offset} of {partition} is above its end"
                    f" {bounds.end_offset}: the leader is stale, or the log is shorter than it was",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=offset,
                    **bounds._asdict(),
                ) from error
            if self._consumer is not None:
                self._consumer.seek(source, offset)

    def _gone(self, partition: TopicPartition) -> TopicGone:
        topic_id = self._topic_ids.get(partition.topic, "")
        which = f"topic {partition.topic} with the id {topic_id}" if topic_id else str(partition)
        return TopicGone(
            f"{which} does not exist any more",
            topic=partition.topic,
            topic_id=topic_id,
        )

    def _stalled(self, partition: TopicPartition, position: int, end_offset: int) -> ReadStalled:
        return ReadStalled(
            f"reading {partition} has not moved from offset {position} of {end_offset}"
            f" for {self._progress_s:.0f} s",
            hint=f"`snapreplay doctor {MODULE}` shows which partitions have no leader",
            topic=partition.topic,
            partition=partition.partition,
            position=position,
            end_offset=end_offset,
        )


def _trimmed(partition: TopicPartition, offset: int, bounds: Bounds) -> OffsetTrimmed:
    return OffsetTrimmed(
        f"offset {offset} of {partition} is gone: the log starts at {bounds.start_offset}",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        **bounds._asdict(),
    )


def _now() -> float:
    return asyncio.get_running_loop().time()

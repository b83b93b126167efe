"""Reads partitions without a group: assign, seek, and done means "the position has reached the end".

An empty poll means nothing: it may be an election, a reconnect, aborted data. A client whose brokers have all
moved never finds them again, so a read without progress gets a new client, with another address first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
)
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import InputRecord
from snapreplay.app.ways import MODULE, look_again
from snapreplay.counted import some
from snapreplay.errors import DamagedError, SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed, ReadStalled, TopicGone, Unreachable
from snapreplay.service.kafka.clients import consumer_client
from snapreplay.service.kafka.config import consumer_arguments
from snapreplay.service.kafka.connection import KERNEL_ENDS_SILENCE
from snapreplay.service.kafka.entry import entered
from snapreplay.service.kafka.errors import Asked, client_error, translated
from snapreplay.service.kafka.fetch_by_id import FetchWatch, arrived, fetch_by_id, slim_records, something_new, wake
from snapreplay.service.kafka.fetches import FetchedBatches, batch_at, epoch_end
from snapreplay.service.kafka.shared import Metadata, Shared
from snapreplay.service.kafka.shutdown import close_consumer, finish_despite_cancel
from snapreplay.service.ports import NO_ANCHORS, NO_IDS, Bounds, EpochEnd, LogBatch, TopicPartition

SLICE_RECORDS = 5000
_POLL_MS_MIN, _POLL_MS_MAX = 2, 200  # one over nothing but markers ends by its timeout, not at the end: start short
LAG_SECONDS = 5.0  # a broker may not know a topic that exists
# Kafka's default. Among many clients fetches that return nothing are what an idle process does most.
FETCH_WAIT_MS, FETCH_WAIT_MS_MAX, FETCH_MS_PER_CLIENT = 500, 20_000 if KERNEL_ENDS_SILENCE else 5000, 40
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 5.0

_Answer = TypeVar("_Answer")


class KafkaReader:
    """A reader, `ports.Reader`. Call `start` first."""

    def __init__(
        self,
        settings: Settings,
        *,
        read_committed: bool,
        large: bool,
        patient: bool = False,
        topic_ids: Mapping[str, str] = NO_IDS,
        shared: Shared | None = None,
    ) -> None:
        """Take `shared`, of this loop; None: it shares with nobody."""
        self._settings = settings
        self._shared = shared or Shared(settings)
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
        self._metadata: Metadata | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._closed = False
        self._woken = False
        self._damaged = CorruptBatches()

    async def start(self) -> None:
        """Make sure that a broker answers. A client follows when something is to be read: many only ask for bounds.

        Raises:
            Unreachable: no broker answered.
            NotAuthenticated: access was refused.
        """
        async with translated("connecting a reader", give_up=self._leave):
            await entered(self._enter(), self._settings)
            if self._closed:  # meanwhile, by another task
                raise Unreachable("this reader is closed")

    async def _enter(self) -> None:
        self._metadata = await self._shared.enter()

    async def _leave(self) -> None:
        metadata, self._metadata = self._metadata, None
        if metadata is not None:
            await self._shared.leave()

    @property
    def disturbances(self) -> int:
        return self._disturbances + self._watch.disturbances

    @property
    def doubt(self) -> str:
        return self._watch.doubt

    @property
    def is_silent(self) -> bool:
        return self._watch.is_silent

    async def bounds(self, partition: TopicPartition) -> Bounds:
        return (await self.bounds_of([partition]))[partition]

    async def bounds_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return await self._asked(self._ask_bounds, partitions) if partitions else {}

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        doing = f"asking where {some(map(str, partitions))} end"
        async with self._asking(partitions, doing) as metadata:
            return await metadata.log_ends.end_offsets(partitions, read_committed=self._read_committed)

    async def first_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        return await self._asked(self._ask_time, partition, timestamp_ms)

    async def batch_below(self, partition: TopicPartition, position: int) -> LogBatch | None:
        return await self._asked(self._ask_batch, partition, position - 1)

    async def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        return await self._asked(self._ask_epoch, partition, leader_epoch)

    async def _asked(self, ask: Callable[..., Awaitable[_Answer]], *what: object) -> _Answer:
        """Ask until somebody answers, for the metadata timeout."""
        deadline, pause_s = _now() + self._metadata_s, _FIRST_PAUSE_S
        while True:
            try:
                return await ask(*what)
            except Unreachable:
                if _now() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
            await self._renew()

    async def read(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[InputRecord]]:
        if start_offset >= end_offset:
            return
        await self._seek({partition: start_offset})
        try:
            async for records in self._up_to(partition, start_offset, end_offset):
                yield records
        finally:
            self._rest()

    async def _up_to(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[InputRecord]]:
        position, moved_at, renewed_at, poll_ms = start_offset, _now(), _now(), _POLL_MS_MIN
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
                self._check_cut(0.0)
                raise stalled(partition, position, end_offset, self._progress_s)
            if _now() - (self._watch.missing_since or _now()) > self._lag_s:
                raise gone(partition, self._topic_ids.get(partition.topic, ""))
            if _now() - renewed_at > self._patience_s:
                await self._renew()
                renewed_at = _now()

    async def read_at(self, partition: TopicPartition, offset: int) -> InputRecord | None:
        """Read as `ports.Reader.read_at` says. Also None at or beyond the end.

        Raises:
            OffsetTrimmed: below the start.
        """
        bounds = await self.bounds(partition)
        if offset < bounds.start_offset:
            raise trimmed(partition, offset, bounds)
        if offset >= bounds.end_offset:
            return None
        found: InputRecord | None = None
        async for records in self.read(partition, offset, offset + 1):
            found = records[0]
        return found

    async def follow(
        self, positions: Mapping[TopicPartition, int], anchors: Mapping[TopicPartition, PositionAnchor] = NO_ANCHORS
    ) -> None:
        await self._seek(positions)
        self._watch.doubt = ""
        self._watch.batches = {
            (each.topic, each.partition): FetchedBatches(at, anchors.get(each)) for each, at in positions.items()
        }

    def anchor_below(self, partition: TopicPartition, position: int) -> PositionAnchor | None:
        batches = self._watch.batches.get((partition.topic, partition.partition))
        if batches is None:
            return None
        batches.forget_before(position)
        return batches.below(position)

    async def _seek(self, positions: Mapping[TopicPartition, int]) -> None:
        if {each.topic for each in positions} != {each.topic for each in self._positions}:
            self._watch.missing_since = None
        self._watch.batches, self._watch.cut = {}, {}
        self._positions = dict(positions)
        if self._consumer is None:
            await (self._renew() if self._disturbances else self._try_to_connect())
            return
        if self._patient:
            self._consumer._client.give_back()  # else the next fetch waits for the answer to the last, futile one
        self._assign(self._consumer)

    async def poll(
        self, records_max: int, timeout_ms: int, only: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Sequence[InputRecord]]:
        self._check_cut(self._progress_s)
        consumer = await self._connected()
        wait_ms, self._woken = 0 if self._woken else timeout_ms, False
        try:
            if not self._positions:  # the client would wait for an assignment for ever
                await something_new(consumer, wait_ms)
                return {}
            if self._damaged.wary:
                places = self._positions if only is None else only
                return await self._poll_warily(consumer, places, records_max, min(timeout_ms, _POLL_MS_MAX))
            sources = [ClientPartition(*each) for each in only or ()]
            fetched = await arrived(consumer, records_max, wait_ms, sources)
        except OffsetOutOfRangeError as error:
            await self._judge(error)
            return {}
        except (CorruptRecordException, UnsupportedCodecError):
            self._damaged.met()
            await self._renew()  # at our positions: the client may have passed records that it did not return
            return {}
        except KafkaError as error:
            raise client_error(error, "reading", Asked(self._settings, "Read")) from error
        check_allowed(consumer._client.cluster, (topic for topic, _ in self._positions), self._settings)
        for partition in self._positions:
            self._positions[partition] = await consumer.position(ClientPartition(*partition))
        return {TopicPartition(*source): records for source, records in fetched.items()}

    def _check_cut(self, longest_s: float) -> None:
        for source, since_s in self._watch.cut.items():
            if (seconds := _now() - since_s) > longest_s:
                partition = TopicPartition(*source)
                raise cut_off(partition, self._positions[partition], seconds)

    def wake(self) -> None:
        if self._consumer is None or not wake(self._consumer):
            self._woken = True

    async def _poll_warily(
        self, consumer: AIOKafkaConsumer, places: Collection[TopicPartition], records_max: int, timeout_ms: int
    ) -> Mapping[TopicPartition, Sequence[InputRecord]]:
        fetched: dict[TopicPartition, list[InputRecord]] = {}
        for partition in list(places):
            wait_ms = timeout_ms
            for _ in range(records_max - sum(map(len, fetched.values()))):
                position = self._positions[partition]
                try:
                    records = await self._damaged.one(consumer, partition, position, wait_ms)
                except SnapreplayError:
                    if not fetched:
                        raise
                    records = None  # what was read comes first, then the error again
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
        return self._positions[partition]

    def end_offset(self, partition: TopicPartition) -> int | None:
        if not self._read_committed:
            return self.high_watermark(partition)
        end: int | None = self._consumer and self._consumer.last_stable_offset(ClientPartition(*partition))
        return end

    def high_watermark(self, partition: TopicPartition) -> int | None:
        end: int | None = self._consumer and self._consumer.highwater(ClientPartition(*partition))
        return end

    async def close(self) -> None:
        self._closed = True
        consumer, self._consumer = self._consumer, None
        await finish_despite_cancel(self._end(consumer))

    async def _end(self, consumer: AIOKafkaConsumer | None) -> None:
        if consumer is not None:
            await close_consumer(consumer)
        await self._leave()

    async def _poll_patiently(self, partition: TopicPartition, poll_ms: int) -> Sequence[InputRecord]:
        """Poll; an absent broker only means no progress: the progress timeout decides."""
        try:
            return (await self.poll(SLICE_RECORDS, poll_ms)).get(partition, ())
        except Unreachable:
            if self._closed:
                raise
            await asyncio.sleep(_POLL_MS_MAX / 1000)
            return ()

    def _rest(self) -> None:
        """Fetch nothing more: the client fetches ahead, and asks for the next records over and over."""
        if self._consumer is not None:
            self._consumer.pause(*self._consumer.assignment())

    def _assign(self, consumer: AIOKafkaConsumer) -> None:
        """Assign and seek without an await between them: without a position the client would wait for one for ever."""
        if not self._positions:
            return
        consumer.assign([ClientPartition(*partition) for partition in self._positions])
        for partition, offset in self._positions.items():
            consumer.seek(ClientPartition(*partition), offset)

    async def _connect(self) -> AIOKafkaConsumer:
        arguments = consumer_arguments(
            self._settings, read_committed=self._read_committed, large=self._large, patient=self._patient
        )
        # With one input nothing else would wait for its fetch.
        may_wait = self._patient and len(self._topic_ids) == 1 and "fetch_max_wait_ms" not in arguments
        consumer = consumer_client(arguments, self._shared)
        async with translated("connecting a reader", give_up=partial(close_consumer, consumer)):
            await entered(consumer.start(), self._settings)
        if self._closed:  # meanwhile, by another task
            await close_consumer(consumer)
            raise Unreachable("this reader is closed")
        self._disturbances += self._watch.disturbances + 1
        self._watch = fetch_by_id(consumer, self._watch, self._fetch_wait_ms if may_wait else None)
        slim_records(consumer)
        self._assign(consumer)
        self._consumer = consumer
        return consumer

    def _fetch_wait_ms(self) -> int:
        """Return the wait of the next fetch; of one that is to tell where the log ends, the client's own."""
        among_all_ms = max(FETCH_WAIT_MS, min(FETCH_MS_PER_CLIENT * self._shared.users, FETCH_WAIT_MS_MAX))
        return among_all_ms if all(self.end_offset(each) is not None for each in self._positions) else FETCH_WAIT_MS

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            if self._closed:
                raise Unreachable("this reader is closed")
            return await self._connect()
        return self._consumer

    async def _renew(self) -> None:
        """Connect a new client at the same positions, another address first; else the next call tries again."""
        consumer, self._consumer = self._consumer, None
        self._shared.distrust()
        if consumer is not None:
            await close_consumer(consumer)
        await self._try_to_connect()

    async def _try_to_connect(self) -> None:
        try:
            await self._connected()
        except Unreachable:
            if self._closed:
                raise

    async def _ask_bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        async with self._asking(partitions, f"asking for the bounds of {some(map(str, partitions))}") as metadata:
            return await metadata.log_ends.bounds(partitions, read_committed=self._read_committed)

    @asynccontextmanager
    async def _asking(self, partitions: Collection[TopicPartition], doing: str) -> AsyncIterator[Metadata]:
        metadata = self._metadata
        if metadata is None:
            raise Unreachable("this reader is closed")
        topics = {each.topic for each in partitions}
        asked = Asked(self._settings, "Read", next(iter(topics)) if len(topics) == 1 else "")
        async with translated(doing, asked, within_s=self._settings.request_timeout_ms / 1000):
            check_allowed(await metadata.of(topics), topics, self._settings)
            yield metadata

    async def _ask_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        consumer, source = await self._connected(), ClientPartition(*partition)
        async with translated(f"asking {partition} for a time", Asked(self._settings, "Describe", partition.topic)):
            found = (await consumer.offsets_for_times({source: timestamp_ms}))[source]
        return (await self.bounds(partition)).end_offset if found is None else int(found.offset)

    async def _ask_batch(self, partition: TopicPartition, offset: int) -> LogBatch | None:
        client, asked = (await self._connected())._client, Asked(self._settings, "Read", partition.topic)
        async with translated(f"asking {partition} for offset {offset}", asked):
            return await batch_at(client, partition, offset, self._topic_ids)

    async def _ask_epoch(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        client, asked = (await self._connected())._client, Asked(self._settings, "Describe", partition.topic)
        async with translated(f"asking {partition} for leader epoch {leader_epoch}", asked):
            return await epoch_end(client, partition, leader_epoch)

    async def _judge(self, error: OffsetOutOfRangeError) -> None:
        """Judge an offset out of range: fresh bounds show on which side. If on neither any more, seek again."""
        for source, offset in error.args[0].items():
            partition = TopicPartition(*source)
            bounds = await self.bounds(partition)
            wrong = out_of_range(partition, offset, bounds)
            if wrong is not None:
                raise wrong from error
            self._watch.refused(partition)
            if self._consumer is not None:
                self._consumer.seek(source, offset)


def _now() -> float:
    return asyncio.get_running_loop().time()


ATTEMPTS_MAX = 3
# More than one fetch of the smallest records holds.
WARY_RECORDS = 30_000


class CorruptBatches:
    """The damaged batches that a reader has met. The client neither returns what lies before one in the same fetch nor
    says where it is, so after the first one records are taken one by one for a while.
    """

    def __init__(self) -> None:
        self._wary_records = 0
        self._at: tuple[TopicPartition, int] | None = None
        self._attempts = 0

    @property
    def wary(self) -> bool:
        """Whether to take records one by one, with `one`."""
        return self._wary_records > 0

    def met(self) -> None:
        """Note that a poll of many records met a damaged batch."""
        self._wary_records = WARY_RECORDS

    async def one(
        self, consumer: AIOKafkaConsumer, partition: TopicPartition, position: int, timeout_ms: int
    ) -> list[InputRecord] | None:
        """Return the next record of a partition, or none; None when its batch is damaged, and a new client is to try.

        Raises:
            DamagedError: that was the last attempt.
            StopError: its batch is compressed, and what would decompress it is not installed.
        """
        source = ClientPartition(*partition)
        try:
            fetched = await consumer.getmany(source, timeout_ms=timeout_ms, max_records=1)
        except CorruptRecordException as error:
            self._count(partition, position, error, _leader_of(consumer, source))
            return None
        except UnsupportedCodecError as error:
            raise client_error(error, f"reading {partition} from offset {position} on") from error
        self._wary_records -= 1
        records: list[InputRecord] = fetched.get(source, [])
        if records and self._at == (partition, position):
            self._at = None  # this attempt has succeeded
        return records

    def _count(self, partition: TopicPartition, position: int, error: Exception, leader: str) -> None:
        again = self._at == (partition, position)
        self._at, self._attempts = (partition, position), self._attempts + 1 if again else 1
        self._wary_records = WARY_RECORDS
        if self._attempts >= ATTEMPTS_MAX:
            raise DamagedError(
                f"{partition} offset {position}: the record batch was damaged {self._attempts} times in a row",
                hint=f"the copy of the leader, {leader}, is damaged. Stop that broker, so that an intact replica leads,"
                f" then {look_again(partition.partition)}. Before the broker is started again, remove the directory"
                f" {partition} from its log.dirs: the broker then copies the partition again",
                topic=partition.topic,
                partition=partition.partition,
                offset=position,
            ) from error


def _leader_of(consumer: AIOKafkaConsumer, source: ClientPartition) -> str:
    """Name the broker whose bytes the client got, as far as it knows."""
    cluster = consumer._client.cluster
    node_id = cluster.leader_for_partition(source)
    node = None if node_id is None else cluster.broker_metadata(node_id)
    return f"broker {node_id}" + ("" if node is None else f" at {node.host}:{node.port}")


def trimmed(partition: TopicPartition, offset: int, bounds: Bounds) -> OffsetTrimmed:
    return OffsetTrimmed(
        f"offset {offset} of {partition} is gone: the log starts at {bounds.start_offset}",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        **bounds._asdict(),
    )


def out_of_range(partition: TopicPartition, offset: int, bounds: Bounds) -> SnapreplayError | None:
    """Return on which side it is; None: on neither."""
    if offset < bounds.start_offset:
        return trimmed(partition, offset, bounds)
    return _beyond_end(partition, offset, bounds) if offset > bounds.end_offset else None


def _beyond_end(partition: TopicPartition, offset: int, bounds: Bounds) -> OffsetBeyondEnd:
    return OffsetBeyondEnd(
        f"offset {offset} of {partition} is above its end"
        f" {bounds.end_offset}: the leader is stale, or the log is shorter than before",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        **bounds._asdict(),
    )


def gone(partition: TopicPartition, topic_id: str) -> TopicGone:
    which = f"topic {partition.topic} with the id {topic_id}" if topic_id else str(partition)
    return TopicGone(f"{which} no longer exists", topic=partition.topic, topic_id=topic_id)


def stalled(partition: TopicPartition, position: int, end_offset: int, seconds: float) -> ReadStalled:
    return ReadStalled(
        f"reading {partition} has not moved from offset {position} of {end_offset} for {seconds:.0f} s",
        hint=f"`snapreplay doctor {MODULE}` shows which partitions have no leader",
        topic=partition.topic,
        partition=partition.partition,
        position=position,
        end_offset=end_offset,
    )


def cut_off(partition: TopicPartition, position: int, seconds: float) -> ReadStalled:
    return ReadStalled(
        f"reading {partition} has not moved from offset {position} for {seconds:.0f} s: every answer to a fetch ends"
        " inside of its first record batch",
        hint="Kafka's own brokers send at least one whole batch: look for a proxy between the broker and this process,"
        " and connect without it",
        topic=partition.topic,
        partition=partition.partition,
        position=position,
    )


def check_allowed(cluster: ClusterMetadata, topics: Iterable[str], settings: Settings) -> None:
    """Refuse hidden topics: the client would wait for ever for what it may not even see.

    Raises:
        NotAuthorized: one of these topics is hidden.
    """
    hidden = cluster.unauthorized_topics
    for topic in topics if hidden else ():
        if topic in hidden:
            raise client_error(TopicAuthorizationFailedError(topic), "looking for it", Asked(settings, "Read"))

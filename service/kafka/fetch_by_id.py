"""Fetches by topic id, and notices whatever may mean that a log is not the one that was read before.

A fetch by name and offset is answered from whatever topic has the name now. A fetch by id is not: a broker that has
another topic of this name always answers UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import length_hint
from typing import Any, NamedTuple, TypeAlias

from aiokafka import AIOKafkaConsumer
from aiokafka.client import ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.conn import CloseReason
from aiokafka.consumer.fetcher import READ_COMMITTED, Fetcher, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException, KafkaError, NoError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay import engine
from snapreplay.app.record import RawRecord
from snapreplay.engine import Compiled
from snapreplay.service.kafka.fetches import FetchById, Fetched, FetchedBatches, readable
from snapreplay.service.kafka.shared import SharingClient
from snapreplay.service.ports import EpochEnd, TopicPartition

_CORRUPT = 2
_NO_TIMESTAMP = -1
# The client asks again at once, or 20 ms after an error: 20 readers of a broker that is gone took 35 % of a core
# (measured).
_PAUSE_S, _PAUSE_S_MAX = 0.1, 1.0
# The client's fetcher looks every 0.2 s whether there is anything to do, although everything that there may be wakes
# it. With 200 partitions that was half of what an idle process did (measured).
_LOOK_AGAIN_S = 10.0
_LATE_S = 1.0
"""After the wait of a fetch, a broker that has not answered is silent."""

Source = tuple[str, int]
"""Topic and partition."""

Arrived: TypeAlias = Mapping[ClientPartition, Sequence[RawRecord]]


class FetchWatch:
    """A watch over one client.

    Attributes:
        disturbances: how often a connection was lost, a fetch was refused, or a leader epoch changed unasked.
        doubt: why what was read may not be in the log any more, as a broker said; empty: none said so.
        batches: of the partitions that are followed, what was fetched since.
        missing_since: by the loop's clock, when a broker first said that there is no such topic; None after an answer
            that has the topic.
        unreadable: what a broker could not read from its disk, until somebody takes it from here.
        cut: where every answer has ended inside of its first record batch, and since when, by the loop's clock.
        fetched: the record batches of an answer, as bytes, until somebody takes them from here.
    """

    def __init__(self, ids: Mapping[str, str], wait_ms: Callable[[], int] | None = None) -> None:
        """Take `wait_ms`, which says how long a broker may wait for records; None: as the client is set."""
        self.ids = ids
        self._wait_ms = wait_ms
        self.disturbances = 0
        self.missing_since: float | None = None
        self.doubt = ""
        self.unreadable: set[Source] = set()
        self.cut: dict[Source, float] = {}
        self.batches: dict[Source, FetchedBatches] = {}
        self.fetched: dict[Source, bytes] = {}
        self._due: dict[int, float] = {}  # broker → when the fetch that it has not answered yet is late
        self._unanswered: set[Source] = set()  # since their last fetch has failed

    @property
    def is_silent(self) -> bool:
        """Whether a broker should have answered a fetch by now."""
        is_late = bool(self._due) and min(self._due.values()) < asyncio.get_running_loop().time()
        return is_late or not self._unanswered.isdisjoint(self.batches)

    @contextmanager
    def awaiting(self, node_id: int, fetch: FetchRequest) -> Iterator[None]:
        """Expect the answer of a broker to a fetch in the block."""
        self._due[node_id] = asyncio.get_running_loop().time() + fetch._max_wait_ms / 1000 + _LATE_S
        sources = {(topic, asked[0]) for topic, partitions in fetch.topics for asked in partitions}
        try:
            yield
            self._unanswered -= sources
        except KafkaError:
            self._unanswered |= sources  # also while the client connects again, or looks for a broker
            raise
        finally:
            self._due.pop(node_id, None)

    def asked(self, fetch: FetchRequest) -> FetchRequest:
        """Ask by id, when all ids are known, and with the leader epoch of what was read before."""
        if self._wait_ms is not None:
            fetch._max_wait_ms = self._wait_ms()
        if not all(self.ids.get(topic) for topic, _ in fetch.topics):
            return fetch
        below = {
            (topic, partition): self.batches[topic, partition].below(offset)
            for topic, partitions in fetch.topics
            for partition, offset, _ in partitions
            if (topic, partition) in self.batches
        }
        epochs = {source: anchor.leader_epoch for source, anchor in below.items() if anchor}
        return FetchById(fetch, self.ids, epochs)

    def diverged(self, ends: Mapping[Source, EpochEnd]) -> None:
        """Note that a broker has another log than the one that was read."""
        for (topic, partition), (epoch, end_offset) in ends.items():
            self._doubted(f"the log of {topic}-{partition} has leader epoch {epoch} up to offset {end_offset} only")

    def refused(self, partition: TopicPartition) -> None:
        """Note that an offset within the log was refused: the broker does not know the epoch of what was read."""
        batches = self.batches.get((partition.topic, partition.partition))
        if batches is not None and batches.latest_epoch >= 0:
            self._doubted(f"the log of {partition} does not know leader epoch {batches.latest_epoch}")

    def _doubted(self, why: str) -> None:
        """Count a doubt once, however often the client's fetcher asks again."""
        if not self.doubt:
            self.doubt = why
            self.disturbances += 1

    def readable(self, answer: Any, cut: dict[Source, float]) -> Any:
        """Return the answer with what the client reads right, and note in `cut` what is cut: as it was when the
        question was asked."""
        topics = [
            (name, [self._readable(name, each, cut) for each in partitions]) for name, partitions in answer.topics
        ]
        return Fetched(answer.API_VERSION, getattr(answer, "error_code", NoError.errno), topics)

    def _readable(self, topic: str, answered: tuple[Any, ...], cut: dict[Source, float]) -> tuple[Any, ...]:
        partition, *rest, records = answered
        found, source = readable(records) if records else records, (topic, partition)
        if found:
            cut.pop(source, None)
        elif records and source not in cut:  # Kafka's own brokers send at least one whole batch
            self.disturbances += 1
            cut[source] = asyncio.get_running_loop().time()
        return (partition, *rest, found)

    def answered(self, answer: Any, batches: Mapping[Source, FetchedBatches]) -> bool:
        """Look at an answer; return whether one of its topics is missing.

        Args:
            batches: as they were when the question was asked: an answer that comes later than another `follow` is
                given out to nobody.

        Raises:
            KafkaError: it has no topics, only an error. The client's fetcher would take that for nothing new and ask
                again at once; after an error it pauses.
        """
        code = getattr(answer, "error_code", NoError.errno)  # since version 7
        if code != NoError.errno:
            self.disturbances += 1
            raise for_code(code)("the whole fetch was refused")
        missing = False
        for topic, partitions in answer.topics:
            for partition, error_code, *rest in partitions:
                if error_code != NoError.errno:
                    self.disturbances += 1
                    missing = missing or error_code == UnknownTopicOrPartitionError.errno
                    if error_code == _CORRUPT:
                        self.unreadable.add((topic, partition))
                    continue
                self.fetched[topic, partition] = rest[-1]
                if (topic, partition) in batches and batches[topic, partition].add(rest[-1]):
                    self.disturbances += 1
        if missing:
            self._miss()
        else:
            self.missing_since = None
        return missing

    def listed(self, followed: Collection[str], cluster: ClusterMetadata) -> None:
        """Look at fresh metadata: a topic without leaders is not fetched, so no answer says that it is missing."""
        if set(followed) - cluster.topics() - cluster.unauthorized_topics:
            self._miss()

    def _miss(self) -> None:
        if self.missing_since is None:
            self.missing_since = asyncio.get_running_loop().time()


class _WatchedClient(SharingClient):
    watch: FetchWatch
    is_reading = True
    _failures = 0  # in a row

    async def send(self, node_id: Any, request: Any, *, group: int = ConnectionGroup.DEFAULT) -> Any:
        if not isinstance(request, FetchRequest):
            return await super().send(node_id, request, group=group)
        asked, batches, cut = self.watch.asked(request), self.watch.batches, self.watch.cut
        try:
            with self.watch.awaiting(node_id, asked):
                answer = await super().send(node_id, asked, group=group)
        except KafkaError:
            self._failures += 1
            await asyncio.sleep(min(_PAUSE_S * 2.0 ** min(self._failures - 1, 16), _PAUSE_S_MAX))
            raise
        self._failures = 0
        diverged = {}
        if isinstance(asked, FetchById):
            diverged = asked.diverged(answer)
            answer = asked.named(answer)
        answer = self.watch.readable(answer, cut)
        self.watch.diverged(diverged)
        if self.watch.answered(answer, batches) or diverged or cut:
            await asyncio.sleep(_PAUSE_S)
        return answer

    def _on_connection_closed(self, conn: Any, reason: Any) -> None:
        if reason is not CloseReason.SHUTDOWN:
            self.watch.disturbances += 1
        super()._on_connection_closed(conn, reason)


def fetch_by_id(consumer: AIOKafkaConsumer, before: FetchWatch, wait_ms: Callable[[], int] | None = None) -> FetchWatch:
    """Make this consumer fetch by the ids of `before`, the watch of the consumer before it, which was at the same
    positions. Call it before anything is assigned to the consumer."""
    watch = FetchWatch(before.ids, wait_ms)
    watch.missing_since, watch.doubt, watch.cut = before.missing_since, before.doubt, before.cut
    watch.batches, watch._unanswered = before.batches, before._unanswered
    client = consumer._client
    client.cluster.add_listener(
        lambda cluster: watch.listed({source.topic for source in consumer.assignment()}, cluster)
    )
    # The consumer makes its client itself.
    client.__class__ = _WatchedClient
    client.watch = watch
    return watch


def slim_records(consumer: AIOKafkaConsumer) -> None:
    """Make this consumer return `RawRecord`s. Call it after `fetch_by_id`, before anything is assigned."""
    # The client makes its fetcher itself, and another one in its place would have to be closed with it.
    consumer._fetcher.__class__ = _SlimFetcher
    consumer._fetcher._fetcher_timeout = _LOOK_AGAIN_S


async def arrived(
    consumer: AIOKafkaConsumer, records_max: int, timeout_ms: int, only: Sequence[ClientPartition] = ()
) -> Arrived:
    """Return what is there, of all partitions or of some; if nothing is, wait for `something_new`. The client's own
    wait does not end after markers."""
    fetched: Arrived = await consumer.getmany(*only, max_records=records_max)
    if not fetched and timeout_ms and await something_new(consumer, timeout_ms):
        fetched = await consumer.getmany(*only, max_records=records_max)
    return fetched


async def something_new(consumer: AIOKafkaConsumer, timeout_ms: int) -> bool:
    """Wait until a fetch brings something, an error or a doubt, until somebody calls `wake`, or until the time is over;
    return whether the consumer is still open."""
    fetcher = consumer._fetcher
    waiter = fetcher._create_fetch_waiter()
    late = asyncio.get_running_loop().call_later(timeout_ms / 1000, fetcher._notify, waiter)
    try:
        await waiter
    finally:
        late.cancel()
    return not fetcher._closed


def wake(consumer: AIOKafkaConsumer) -> bool:
    """Let whoever waits for `something_new` go on; return whether somebody does."""
    waiters = consumer._fetcher._fetch_waiters
    for waiter in waiters:
        consumer._fetcher._notify(waiter)
    return bool(waiters)


# Base offset, length of what follows, format, checksum; attributes, last offset delta, first and largest timestamp,
# producer id, count.
_HEAD = struct.Struct(">qi4xbIhiqqq6xi")
_BEFORE_LENGTH_ENDS, _CHECKED_FROM, _LENGTH_MIN = 12, 21, 26  # bytes; the last of the oldest format
_CODEC_MASK, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_CODECS: dict[int, Callable[[bytes], bytes]] = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
_FIRST_FORMAT_WITH_HEADERS = 2


class Batch(NamedTuple):
    """A batch of a fetch: its records, the offset behind it, and where the next batch begins in the fetched bytes."""

    records: list[RawRecord]
    next_offset: int
    ends_at: int


class Head(NamedTuple):
    """The head of a batch of format 2, whose bytes are `data[begins_at:ends_at]`."""

    begins_at: int
    ends_at: int
    base_offset: int
    next_offset: int  # of the batch behind it
    checksum: int
    attributes: int
    first_ms: int
    largest_ms: int
    producer_id: int
    record_count: int

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)


def heads_in(data: bytes) -> Iterator[Head | slice]:
    """Yield the heads of the batches in an answer. Of another format, and of what is no batch, only the place."""
    at = 0
    while at + _HEAD.size <= len(data):
        base_offset, length, version, checksum, attributes, last_delta, *rest = _HEAD.unpack_from(data, at)
        end = at + _BEFORE_LENGTH_ENDS + length
        if not at + _LENGTH_MIN <= end <= len(data):
            break
        if version == _FIRST_FORMAT_WITH_HEADERS and end >= at + _HEAD.size:
            yield Head(at, end, base_offset, base_offset + last_delta + 1, checksum, attributes, *rest)
        else:
            yield slice(at, end)
        at = end
    if at < len(data):
        yield slice(at, len(data))


LOT_RECORDS = 2048
"""Records that the engine makes at once: a quarter of a millisecond. A compressed batch may hold millions."""


def lots_by(
    compiled: Compiled, data: bytes, head: Head, source: tuple[str, int], from_offset: int
) -> Iterator[list[RawRecord] | None]:
    """Yield the records of a batch from this offset on; None, as the last, if another parser must read what is left:
    something is unusual. Control records are not for here."""
    begin, end, codec = head.begins_at + _HEAD.size, head.ends_at, head.attributes & _CODEC_MASK
    if codec:
        try:
            data = _CODECS[codec](data[begin:end])
        except Exception:  # noqa: BLE001 - the client's parser then names the damage
            yield None
            return
        begin, end = 0, len(data)
    at_ms = head.largest_ms if head.attributes & _LOG_APPEND_TIME else None
    rest = (head.base_offset, head.first_ms, at_ms, *source, from_offset, RawRecord)
    left = head.record_count
    while left > 0:
        found = compiled.records(data, begin, end, min(left, LOT_RECORDS), *rest)
        if found is None:
            break
        records, begin = found
        yield records
        left -= LOT_RECORDS
    if begin != end:
        yield None


def is_intact(compiled: Compiled, data: bytes, head: Head) -> bool:
    return compiled.crc32c(data, head.begins_at + _CHECKED_FROM, head.ends_at) == head.checksum


def batch_holding(data: bytes, offset: int, topic: str, partition: int) -> Batch:
    """Return the first batch that ends behind this offset.

    Raises:
        CorruptRecordException: it is not whole, or there is none.
    """
    at = 0
    try:
        while True:
            base_offset, length, version, _, attributes, last_delta, *rest = _HEAD.unpack_from(data, at)
            end = at + _BEFORE_LENGTH_ENDS + length
            if base_offset + last_delta >= offset and version == _FIRST_FORMAT_WITH_HEADERS:
                break
            at = end
        body = data[at + _HEAD.size : end]
        codec = _CODECS.get(attributes & _CODEC_MASK)
        if codec is not None:
            body = codec(body)
        first_ms, largest_ms, _, count = rest
        at_ms = largest_ms if attributes & _LOG_APPEND_TIME else None
        records, position = [], 0
        for _ in range(count):
            record, position = _record(body, position, topic, partition, base_offset, first_ms, at_ms)
            records.append(record)
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptRecordException(
            f"the batch of {topic}-{partition} offset {offset} is not whole: {error}"
        ) from error
    return Batch(records, base_offset + last_delta + 1, end)


def _record(
    body: bytes, at: int, topic: str, partition: int, base_offset: int, first_ms: int, at_ms: int | None
) -> tuple[RawRecord, int]:
    length, at = decode_varint(body, at)
    end = at + length
    delta_ms, at = decode_varint(body, at + 1)  # behind the attributes, of which no bit is used
    offset_delta, at = decode_varint(body, at)
    key, at = _data(body, at)
    value, at = _data(body, at)
    count, at = decode_varint(body, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _data(body, at)
        data, at = _data(body, at)
        headers.append(((name or b"").decode(errors="backslashreplace"), data))
    if at != end:
        raise ValueError(f"a record of {length} bytes ends {end - at} bytes too early")
    timestamp_ms = first_ms + delta_ms if at_ms is None else at_ms
    return RawRecord(topic, partition, base_offset + offset_delta, timestamp_ms, key, value, tuple(headers)), end


def _data(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(body, at)
    if size < 0:
        return None, at
    if at + size > len(body):
        raise ValueError("it ends in the middle of a record")
    return body[at : at + size], at + size


class _SlimFetcher(Fetcher):
    """A fetcher of `RawRecord`s, without the unused fields. Each error reaches the next poll: the client's
    own fetcher ends with an unexpected one, and only logs an unknown one.
    """

    def _get_actions_per_node(self, assignment: Any) -> Any:
        """Look again after a fetch that has ended just now. Until its callback has run, the client takes it for one
        under way and asks that broker for nothing; and nothing wakes the client when the callback has run."""
        if len(self._in_flight) > len(self._pending_tasks):
            asyncio.get_running_loop().call_soon(self._notify, self._wait_consume_future)
        return super()._get_actions_per_node(assignment)

    async def _proc_fetch_request(self, assignment: Any, node_id: int, request: Any) -> bool:
        errors: dict[Source, Exception] = {}
        try:
            has_new_data: bool = await super()._proc_fetch_request(assignment, node_id, request)
        except Exception as error:  # noqa: BLE001 - whoever polls is told
            asked = [(topic, each[0]) for topic, partitions in request.topics for each in partitions]
            errors, has_new_data = dict.fromkeys(asked, error), True
        unreadable = self._client.watch.unreadable
        while unreadable:
            errors[unreadable.pop()] = CorruptRecordException("the broker cannot read it")
            has_new_data = True
        for source, met in errors.items():
            if assignment.active and ClientPartition(*source) not in self._records:
                self._set_error(ClientPartition(*source), met)
        fetched = self._client.watch.fetched
        for source, result in self._records.items():
            records: Any = result._partition_records if type(result) is FetchResult else None
            if type(records) is PartitionRecords:
                records.__class__ = _TolerantRecords
                records.fetched = fetched.get(source, b"")
                if engine.compiled is not None:
                    _EngineRecords.take_over(records, engine.compiled)
        for topic, partitions in request.topics:
            for each in partitions:
                fetched.pop((topic, each[0]), None)
        return has_new_data or bool(self._client.watch.doubt)


class _TolerantRecords(PartitionRecords):
    """The records of a fetch, as `RawRecord`s; a batch that the client cannot decode for the name of a header is
    decoded here.

    `fetched`: the bytes of the fetch.
    """

    fetched: bytes
    next_fetch_offset: int
    _records_iterator: Iterator[RawRecord]

    def __next__(self) -> RawRecord:
        try:
            return next(self._records_iterator)
        except UnicodeDecodeError:
            pass
        except CorruptRecordException as error:  # the client's parser without its C extension wraps it
            if not isinstance(error.__cause__, UnicodeDecodeError):
                raise
        self._records_iterator = self._decoded_here()
        return next(self._records_iterator)

    def _decoded_here(self) -> Iterator[RawRecord]:
        """Yield the rest of the batch at the position, then what the client decodes behind it."""
        batch = batch_holding(self.fetched, self.next_fetch_offset, *self._tp)
        for record in batch.records:
            if record.offset >= self.next_fetch_offset:
                self.next_fetch_offset = record.offset + 1
                yield record
        self.next_fetch_offset = batch.next_offset
        self.fetched = self.fetched[batch.ends_at :]
        self._records = MemoryRecords(self.fetched)
        yield from self._unpack_records()

    def _consumer_record(self, source: ClientPartition, record: Any) -> RawRecord:
        topic, partition = source
        headers = record.headers
        at_ms = record.timestamp  # format 0 has none; Kafka's own clients say -1 then
        return RawRecord(
            topic,
            partition,
            record.offset,
            _NO_TIMESTAMP if at_ms is None else at_ms,
            record.key,
            record.value,
            tuple(headers) if headers else (),
        )

    def _contains_abort_marker(self, next_batch: Any) -> bool:
        """Say whether this control batch ends an aborted transaction. One without records does not, as for Kafka's own
        clients: the cleaner has removed its marker, after all that was aborted. It keeps the batch while that is the
        last of its producer, and since KIP-890 each transaction has a producer epoch of its own."""
        marker = next(next_batch, None)
        return marker is not None and ControlRecord.parse(marker.key) == ABORT_MARKER


class _EngineRecords(_TolerantRecords):
    """The same records, made by the compiled engine a batch at a time. What it does not take, such as a control batch
    or a damaged one, goes through the client's parser, on its own."""

    _compiled: engine.Compiled
    _position: int
    _batch: Sequence[
        RawRecord
    ]  # a part of a batch, given out by `_rest`; the position is behind its last record that was taken
    _rest: Iterator[RawRecord]
    _given_out: Iterator[RawRecord]

    @classmethod
    def take_over(cls, records: Any, compiled: engine.Compiled) -> None:
        position = records.next_fetch_offset
        records.__class__ = cls
        records.next_fetch_offset, records._compiled = position, compiled
        records._given_out = chain.from_iterable(records._by_batch())

    def __iter__(self) -> Iterator[RawRecord]:
        return self._given_out

    @property
    def next_fetch_offset(self) -> int:
        taken = len(self._batch) - length_hint(self._rest)
        return self._batch[taken - 1].offset + 1 if taken else self._position

    @next_fetch_offset.setter
    def next_fetch_offset(self, position: int) -> None:
        self._position, self._batch, self._rest = position, (), iter(())

    def _by_batch(self) -> Iterator[Iterable[RawRecord]]:
        data = self.fetched
        for head in heads_in(data):
            if isinstance(head, slice):
                yield from self._by_client(data[head])
                continue
            if head.is_control or (self._check_crcs and not is_intact(self._compiled, data, head)):
                yield from self._by_client(data[head.begins_at : head.ends_at])
                continue
            if self._isolation_level == READ_COMMITTED:
                self._consume_aborted_up_to(head.base_offset)
                if head.is_transactional and head.producer_id in self._aborted_producers:
                    self.next_fetch_offset = head.next_offset
                    continue
            for lot in lots_by(self._compiled, data, head, self._tp, self.next_fetch_offset):
                if lot is None:
                    yield from self._by_client(data[head.begins_at : head.ends_at])
                else:
                    self._batch, self._rest = lot, iter(lot)
                    yield self._rest
            self.next_fetch_offset = head.next_offset

    def _by_client(self, data: bytes) -> Iterator[Iterable[RawRecord]]:
        self.fetched, self._records = data, MemoryRecords(data)
        self._records_iterator = self._unpack_records()
        return zip(iter(partial(next, self, None), None))

"""Record batches of a producer: which partition a record goes to, and in which batch it is, within the topics' limits.
Pure, apart from the time of writing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from msgspec import Struct

from snapreplay import engine
from snapreplay.app.names import alter
from snapreplay.app.out import DEFAULT_LIMIT_BYTES, ROOM_BYTES
from snapreplay.app.record import Carried, Output
from snapreplay.service.clock import wall_ms
from snapreplay.service.core.kafka_errors import RefusedRecord
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.service.kafka.records import BEFORE_LENGTH_ENDS, FORMAT, NO_EPOCH
from snapreplay.service.ports import LogRecord, TopicPartition

BATCH_OVERHEAD_BYTES = 128
"""Kept free below a topic's max.message.bytes; the header of a record batch is 61 bytes."""

_NO_HEADERS: list[tuple[str, bytes | None]] = []


class TopicShape(Struct, frozen=True):
    """The facts of a topic that are needed before the first record for it is batched."""

    partition_count: int
    batch_bytes: int  # a batch is full at this size
    # The topic's max.message.bytes; one record may fill a batch beyond batch_bytes.
    record_bytes_max: int


CODECS: dict[object, int] = {
    None: DefaultRecordBatch.CODEC_NONE,
    "gzip": DefaultRecordBatch.CODEC_GZIP,
    "snappy": DefaultRecordBatch.CODEC_SNAPPY,
    "lz4": DefaultRecordBatch.CODEC_LZ4,
    "zstd": DefaultRecordBatch.CODEC_ZSTD,
}
"""Of `compression.type`."""

_HEAD, _CHECKED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
_TRANSACTIONAL = 0x10
_ENCODERS: dict[int, Callable[[bytes], bytes]] = {1: gzip_encode, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode}
_NO_PRODUCER = (-1, -1, 0)
"""The place of a producer's id, epoch and base sequence."""


class Batch(Protocol):
    """A record batch of one partition that is yet to be written."""

    @property
    def record_count(self) -> int: ...

    def built(self, producer_id: int, epoch: int, base_sequence: int) -> bytes | bytearray:
        """Return the bytes for the wire. Call it once."""


class PackedBatch:
    """A batch whose records the compiled engine has packed."""

    def __init__(
        self,
        compiled: engine.Compiled,
        compression: int,
        body: bytes,
        record_count: int,
        first_ms: int,
        largest_ms: int,
    ) -> None:
        self.record_count = record_count
        self._compiled = compiled
        self._compression = compression
        self._body = body
        self._times = first_ms, largest_ms

    def built(self, producer_id: int, epoch: int, base_sequence: int) -> bytes:
        encode = _ENCODERS.get(self._compression)
        body = encode(self._body) if encode is not None else self._body
        attributes = _TRANSACTIONAL | self._compression
        last = self.record_count - 1
        producer = producer_id, epoch, base_sequence
        checked = _CHECKED.pack(attributes, last, *self._times, *producer, last + 1) + body
        length = _HEAD.size + len(checked) - BEFORE_LENGTH_ENDS
        checksum = self._compiled.crc32c(checked, 0, len(checked))
        return _HEAD.pack(0, length, NO_EPOCH, FORMAT, checksum) + checked


class OpenBatch:
    """A batch that is filled record by record."""

    __slots__ = ("builder", "record_count")

    def __init__(self, size_bytes: int, compression: int, *, transactional: bool) -> None:
        self.builder = DefaultRecordBatchBuilder(FORMAT, compression, int(transactional), *_NO_PRODUCER, size_bytes)
        self.record_count = 0

    def built(self, producer_id: int, epoch: int, base_sequence: int) -> bytearray:
        self.builder.set_producer_state(producer_id, epoch, base_sequence)
        built: bytearray = self.builder.build()
        return built


class Place(NamedTuple):
    """Where a record is: the partition, the number of its batch there, and its number in that batch."""

    target: TopicPartition
    batch: int
    number: int


class _Lane:
    """The batches of one partition; the last one is still open."""

    __slots__ = ("batches", "compression", "shape", "target", "transactional")

    def __init__(self, target: TopicPartition, shape: TopicShape, compression: int, *, transactional: bool) -> None:
        self.target, self.shape, self.compression, self.transactional = target, shape, compression, transactional
        self.batches = [self._begun()]

    def _begun(self) -> OpenBatch:
        size_bytes = self.shape.batch_bytes - BATCH_OVERHEAD_BYTES
        return OpenBatch(size_bytes, self.compression, transactional=self.transactional)

    def add(self, record: Output | LogRecord, timestamp_ms: int | None) -> None:
        """Add a record, or raise RefusedRecord if it is too large for its topic."""
        key, value, headers = record.key, record.value, record.headers
        # The builder wants a list; a shared empty one costs nothing.
        listed = list(headers) if headers else _NO_HEADERS
        if type(record) is Carried:
            listed = [*headers, *record.carried]
        batch = self.batches[-1]
        added = batch.builder.append(batch.record_count, timestamp_ms, key, value, listed)
        if added is None:
            batch = self._begun()
            self.batches.append(batch)
            added = batch.builder.append(0, timestamp_ms, key, value, listed)
        batch.record_count += 1
        # Only the first record of a batch may pass the batch's size, so only there can one be too large.
        if added.offset == 0 and added.size + BATCH_OVERHEAD_BYTES > self.shape.record_bytes_max:
            # Our own topics are refused at start with much less.
            least = DEFAULT_LIMIT_BYTES if isinstance(record, LogRecord) else 0
            raise _too_large(self.target.topic, added.size, self.shape.record_bytes_max, least)


class Batches:
    """The batches of one transaction, or of none, per partition in the order of their records."""

    def __init__(self, shapes: Mapping[str, TopicShape], compression: int, *, transactional: bool = True) -> None:
        self._shapes = shapes
        self._compression = compression
        self._transactional = transactional
        self._lanes: dict[str, dict[int, _Lane]] = {}
        self._packed: dict[TopicPartition, list[PackedBatch]] = {}

    def add_outputs(self, outputs: Sequence[Output], state_topic: str, state_partition: int) -> None:
        """Choose each one's partition and append it.

        An explicit partition; or the state's own, for a key that is the input's under an equal partition
        count, and for no key; or Kafka's hash of the key.

        Raises:
            RefusedRecord: no such partition, or too large for its topic.
        """
        same = self._shapes[state_topic].partition_count
        # Behind what the builder has taken, nothing may be packed: order.
        if (
            engine.compiled is not None
            and not self._lanes
            and self._pack(engine.compiled, outputs, same, state_partition)
        ):
            return
        counts = {topic: shape.partition_count for topic, shape in self._shapes.items()}
        for output in outputs:
            topic, key, partition = output.topic, output.key, output.partition
            count = counts[topic]
            if partition is None:
                if key is None or (output.same_key and count == same):
                    partition = state_partition % count
                else:
                    partition = murmur_positive(key) % count
            try:
                lane = self._lanes[topic][partition]
            except KeyError:
                lane = self._lane(topic, partition)
            lane.add(output, output.timestamp_ms)

    def _pack(self, compiled: engine.Compiled, outputs: Sequence[Output], same: int, state_partition: int) -> bool:
        """Let the engine pack them. False: one is unusual, or to be refused, so none is packed."""
        free = BATCH_OVERHEAD_BYTES
        shapes = {
            topic: (number, shape.partition_count, shape.batch_bytes - free, shape.record_bytes_max - free)
            for number, (topic, shape) in enumerate(self._shapes.items())
        }
        listed = outputs if isinstance(outputs, compiled.Out) else list(outputs)
        packed = compiled.pack(listed, shapes, Output, state_partition, same, wall_ms())
        for topic, partition, bodies in packed or ():
            made = [PackedBatch(compiled, self._compression, *each) for each in bodies]
            self._packed.setdefault(TopicPartition(topic, partition), []).extend(made)
        return packed is not None

    def add_records(self, records: Iterable[LogRecord], partition: int) -> list[Place]:
        """Append in order, with the present time. Return the place of each."""
        now_ms = wall_ms()
        return [self.add(record, partition, now_ms) for record in records]

    def add(self, record: Output | LogRecord, partition: int, timestamp_ms: int | None) -> Place:
        """Append to this partition. Return the place.

        Raises:
            RefusedRecord: no such partition, or too large for its topic.
        """
        lane = self._lane(record.topic, partition)
        lane.add(record, timestamp_ms)
        before = len(self._packed.get(lane.target, ()))
        return Place(lane.target, before + len(lane.batches) - 1, lane.batches[-1].record_count - 1)

    @property
    def runs(self) -> dict[TopicPartition, list[Batch]]:
        """The batches to send, by partition; never empty lists."""
        runs: dict[TopicPartition, list[Batch]] = {target: list(packed) for target, packed in self._packed.items()}
        for lanes in self._lanes.values():
            for lane in lanes.values():
                runs.setdefault(lane.target, []).extend(lane.batches)
        return runs

    def _lane(self, topic: str, partition: int) -> _Lane:
        lanes = self._lanes.setdefault(topic, {})
        if partition not in lanes:
            shape = self._shapes[topic]
            if not 0 <= partition < shape.partition_count:
                raise _no_such_partition(topic, partition, shape.partition_count)
            target = TopicPartition(topic, partition)
            lanes[partition] = _Lane(target, shape, self._compression, transactional=self._transactional)
        return lanes[partition]


def _no_such_partition(topic: str, partition: int, count: int) -> RefusedRecord:
    return RefusedRecord(
        f"topic {topic} has no partition {partition}: it has {count}",
        hint="send to a partition below the count, or let the key decide",
        topic=topic,
        error="no such partition",
    )


def _too_large(topic: str, size_bytes: int, limit: int, least_bytes: int) -> RefusedRecord:
    """Make the error for a record of `size_bytes` with headers; `least_bytes`: the lowest limit the topic may have."""
    wanted = max(size_bytes + ROOM_BYTES, least_bytes)
    return RefusedRecord(
        f"a record of {size_bytes} bytes for topic {topic} does not fit its max.message.bytes={limit}",
        hint=f"`{alter(topic, f'max.message.bytes={wanted}')}`",
        topic=topic,
        error="too large",
        size_bytes=size_bytes,
        limit_bytes=limit,
    )

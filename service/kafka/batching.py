"""The way from outputs and log records to full record batches per partition.

`send` costs a future and several awaits per record, a batch one for thousands: 0.7 M against 0.18 M records
per second (measured, 100 bytes, one partition).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from snapreplay.app.names import alter
from snapreplay.app.out import DEFAULT_LIMIT_BYTES, ROOM_BYTES
from snapreplay.app.record import Carried, Output
from snapreplay.service.clock import wall_ms
from snapreplay.service.core.kafka_errors import RefusedRecord
from snapreplay.service.ports import LogRecord, TopicPartition

BATCH_OVERHEAD_BYTES = 128
"""Kept free below a topic's max.message.bytes; the header of a record batch is 61 bytes."""

_NO_HEADERS: list[tuple[str, bytes | None]] = []


@dataclass(frozen=True)
class TopicShape:
    """The facts of a topic that are needed before the first record for it is batched."""

    partition_count: int
    batch_bytes: int  # a batch is full at this size
    # The topic's max.message.bytes; one record may fill a batch beyond batch_bytes.
    record_bytes_max: int


class _Lane:
    """The batches of one partition; the last one is still open."""

    __slots__ = ("batches", "compression", "shape", "target")

    def __init__(self, target: TopicPartition, shape: TopicShape, compression: int) -> None:
        self.target, self.shape, self.compression = target, shape, compression
        self.batches = [self._begun()]

    def _begun(self) -> BatchBuilder:
        size = self.shape.batch_bytes - BATCH_OVERHEAD_BYTES
        return BatchBuilder(size, self.compression, is_transactional=True)

    def add(self, record: Output | LogRecord, timestamp_ms: int | None) -> None:
        """Add a record, or raise RefusedRecord if it is too large for its topic."""
        key, value, headers = record.key, record.value, record.headers
        # The client wants a list; a shared empty one costs nothing.
        listed = list(headers) if headers else _NO_HEADERS
        if type(record) is Carried:
            listed = [*headers, *record.carried]
        # As the client's `append`, without serializers. Two calls less save 0.1 µs of 0.6 a record (measured).
        batch = self.batches[-1]
        added = batch._builder.append(batch._relative_offset, timestamp_ms, key, value, listed)
        if added is None:
            batch = self._begun()
            self.batches.append(batch)
            added = batch._builder.append(0, timestamp_ms, key, value, listed)
        batch._relative_offset += 1
        # Only the first record of a batch may pass the batch's size, so only there can one be too large.
        if added.offset == 0 and added.size + BATCH_OVERHEAD_BYTES > self.shape.record_bytes_max:
            # Our own topics are refused at start with much less.
            least = DEFAULT_LIMIT_BYTES if isinstance(record, LogRecord) else 0
            raise _too_large(self.target.topic, added.size, self.shape.record_bytes_max, least)


class TransactionBatches:
    """Batches of one transaction, per partition in the order of their records."""

    def __init__(self, shapes: Mapping[str, TopicShape], compression: int) -> None:
        self._shapes = shapes
        self._compression = compression
        self._lanes: dict[str, dict[int, _Lane]] = {}

    def add_outputs(self, outputs: Iterable[Output], state_topic: str, state_partition: int) -> None:
        """Choose each one's partition and append it.

        An explicit partition; or the state's own, for a key that is the input's under an equal partition
        count, and for no key; or Kafka's hash of the key.

        Raises:
            RefusedRecord: no such partition, or too large for its topic.
        """
        same = self._shapes[state_topic].partition_count
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

    def add_records(self, records: Iterable[LogRecord], partition: int) -> list[tuple[TopicPartition, int, int]]:
        """Append in order, with the present time. Return for each its partition, batch number and place there."""
        places, now_ms = [], wall_ms()
        for record in records:
            lane = self._lane(record.topic, partition)
            lane.add(record, now_ms)
            places.append((lane.target, len(lane.batches) - 1, lane.batches[-1].record_count() - 1))
        return places

    @property
    def runs(self) -> dict[TopicPartition, list[BatchBuilder]]:
        """The batches to send, by partition; never empty lists."""
        return {lane.target: lane.batches for lanes in self._lanes.values() for lane in lanes.values()}

    def _lane(self, topic: str, partition: int) -> _Lane:
        lanes = self._lanes.setdefault(topic, {})
        if partition not in lanes:
            shape = self._shapes[topic]
            if not 0 <= partition < shape.partition_count:
                raise _no_such_partition(topic, partition, shape.partition_count)
            target = TopicPartition(topic, partition)
            lanes[partition] = _Lane(target, shape, self._compression)
        return lanes[partition]


@lru_cache(maxsize=1 << 17)
def murmur_positive(key: bytes) -> int:
    """Hash a key as all of Kafka's clients do, to choose a partition by it. Pure Python, hence the cache."""
    return int(murmur2(key)) & 0x7FFFFFFF


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

"""The fetches of a log: the request by topic id (KIP-516, Kafka 3.1), which aiokafka 0.14.0 does not have, the
record batches in an answer, and what a leader says that its log holds (KIP-320).

Each fetch may name the leader epoch of what was read before its offset. A broker whose log went another way says where
it did (KIP-595): replicas ask like this, and brokers answer everybody.

A position is behind a record, an aborted record or a marker. Whatever it is, a batch of the log holds the offset below
it. The batch's head has the leader epoch under which it was written and the checksum of all that it holds.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.errors import IncompatibleBrokerVersion, LeaderNotAvailableError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.types import CompactArray, CompactBytes, Int8, Int16, Int32, Int64
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.app.ranges import PositionAnchor
from snapreplay.service.kafka.requests import NO_TAGS, TEXT, LeaderEpochEnds, TopicId, array_of, flexible, struct_of
from snapreplay.service.ports import EpochEnd, LogBatch, TopicPartition

# UNKNOWN_TOPIC_ID and INCONSISTENT_TOPIC_ID, which the client does not know.
_NO_SUCH_ID = {100, 103}
_OUT_OF_RANGE = 1
_NO_EPOCH = _UNDEFINED = -1
_DIVERGING_EPOCH_TAG = 0
_EPOCH_END = struct.Struct(">iq")

# Of a record batch: base offset, length of what follows, leader epoch, format, checksum, last offset delta.
_HEAD = struct.Struct(">qiibI2xi")
_CONTENT, _HEAD_BYTES = struct.Struct(">21xh34xi"), 61  # attributes, number of records
_HAS_DELETE_HORIZON = 0x40  # KIP-534: the cleaner sets it with the base timestamp
_BEFORE_LENGTH_ENDS = 12  # bytes: base offset and length
_LENGTH_MIN = _HEAD.size - _BEFORE_LENGTH_ENDS
_WITH_LEADER_EPOCH = 2  # the format since Kafka 0.11
_LENGTH, _FORMAT_AT = struct.Struct(">8xi"), 16  # of a batch in any format
_OLD_LENGTH_MIN = 14

_WAIT_MS = 500
_ONE_BATCH = 1  # byte: a broker answers with one whole batch at least (KIP-74)

_FetchByIdRequest = struct_of(
    "FetchById",
    1,
    13,
    asked=flexible(
        replica_id=Int32,
        max_wait_time=Int32,
        min_bytes=Int32,
        max_bytes=Int32,
        isolation_level=Int8,
        session_id=Int32,
        session_epoch=Int32,
        topics=array_of(
            topic_id=TopicId,
            partitions=array_of(
                partition=Int32,
                current_leader_epoch=Int32,
                fetch_offset=Int64,
                last_fetched_epoch=Int32,
                log_start_offset=Int64,
                max_bytes=Int32,
            ),
        ),
        forgotten_topics_data=array_of(topic_id=TopicId, partitions=CompactArray(Int32)),
        rack_id=TEXT,
    ),
    answered=flexible(
        throttle_time_ms=Int32,
        error_code=Int16,
        session_id=Int32,
        topics=array_of(
            topic_id=TopicId,
            partitions=array_of(
                partition_index=Int32,
                error_code=Int16,
                high_watermark=Int64,
                last_stable_offset=Int64,
                log_start_offset=Int64,
                aborted_transactions=array_of(producer_id=Int64, first_offset=Int64),
                preferred_read_replica=Int32,
                records=CompactBytes,
            ),
        ),
    ),
)

NO_EPOCHS: Mapping[tuple[str, int], int] = {}


class Fetched(NamedTuple):
    """An answer as the client's fetcher reads it: by name, in the order of fields of version 11."""

    API_VERSION: int
    error_code: int
    topics: list[tuple[str, list[tuple[Any, ...]]]]


class FetchById(FetchRequest):
    """The same fetch, by topic id: a broker that has another topic of this name answers UNKNOWN_TOPIC_ID. By name if
    the broker is older than Kafka 3.1. `ids` has all topics of `fetch`, `epochs` the leader epoch below each offset,
    as far as known."""

    def __init__(
        self, fetch: FetchRequest, ids: Mapping[str, str], epochs: Mapping[tuple[str, int], int] = NO_EPOCHS
    ) -> None:
        super().__init__(
            fetch._max_wait_ms, fetch._min_bytes, fetch._max_bytes, fetch._isolation_level, fetch.topics, fetch._rack_id
        )
        self._ids = ids
        self._names = {topic_id: name for name, topic_id in ids.items()}
        self._epochs = epochs

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is not _FetchByIdRequest:
            return super().build(request_struct_class)
        by_id = []
        for topic, partitions in self._topics:
            asked = [
                (number, _NO_EPOCH, offset, self._epochs.get((topic, number), _NO_EPOCH), -1, max_bytes, NO_TAGS)
                for number, offset, max_bytes in partitions
            ]
            by_id.append((self._ids[topic], asked, NO_TAGS))
        limits = (self._max_wait_ms, self._min_bytes, self._max_bytes)
        no_replica, no_session = -1, (0, -1)
        return _FetchByIdRequest(
            no_replica, *limits, self._isolation_level, *no_session, by_id, [], self._rack_id, NO_TAGS
        )

    def named(self, answer: Any) -> Any:
        """Return the answer by name; an answer by name stays as it is."""
        if answer.API_VERSION != _FetchByIdRequest.API_VERSION:
            return answer
        topics = [
            (self._names[topic_id], [_as_version_11(partition) for partition in partitions])
            for topic_id, partitions, _ in answer.topics
        ]
        return Fetched(11, answer.error_code, topics)

    def diverged(self, answer: Any) -> dict[tuple[str, int], EpochEnd]:
        """Return the partitions whose log went another way before the offset asked for, and where it did."""
        if answer.API_VERSION != _FetchByIdRequest.API_VERSION:
            return {}
        return {
            (self._names[topic_id], partition): EpochEnd(*_EPOCH_END.unpack_from(tags[_DIVERGING_EPOCH_TAG]))
            for topic_id, partitions, _ in answer.topics
            for partition, *_, tags in partitions
            if _DIVERGING_EPOCH_TAG in tags
        }


# The client takes the newest version that both sides know.
FetchById._CLASSES = (*FetchRequest._CLASSES, _FetchByIdRequest)


def _as_version_11(answered: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return one partition's answer without its tags."""
    partition, error_code, *offsets, aborted, preferred_read_replica, records, _ = answered
    return (
        partition,
        UnknownTopicOrPartitionError.errno if error_code in _NO_SUCH_ID else error_code,
        *offsets,
        [(producer_id, first_offset) for producer_id, first_offset, _ in aborted or ()],
        preferred_read_replica,
        records or b"",
    )


def readable(records: bytes) -> bytes:
    """Return the part of an answer that the client reads right.

    Nothing if its first batch is cut off: the client would step over a record. Of an answer that begins with format 0
    or 1, the batches before the first of format 2: the client's compiled parser (aiokafka 0.14.0) takes the format of
    the next batch for that of this one.
    """
    end = _end_of_batch(records, 0)
    if end is None:
        return b""
    if end < _BEFORE_LENGTH_ENDS + _OLD_LENGTH_MIN or records[_FORMAT_AT] >= _WITH_LEADER_EPOCH:
        return records
    while (next_end := _end_of_batch(records, end)) is not None and next_end > end + _FORMAT_AT:
        if records[end + _FORMAT_AT] >= _WITH_LEADER_EPOCH:
            return records[:end]
        end = next_end
    return records


def _end_of_batch(records: bytes, at: int) -> int | None:
    """Return where the batch at this place ends; None when it is cut off."""
    if at + _BEFORE_LENGTH_ENDS > len(records):
        return None
    end = at + _BEFORE_LENGTH_ENDS + int(_LENGTH.unpack_from(records, at)[0])
    return end if end <= len(records) else None


def batches_in(records: bytes | None) -> Iterator[LogBatch]:
    """Return the whole batches of a fetch's answer that have a leader epoch, up to one whose length is damaged."""
    for at, base, end, epoch, crc in _heads_in(records):
        attributes, count = _CONTENT.unpack_from(records or b"", at)
        is_cleaned = bool(attributes & _HAS_DELETE_HORIZON) or count < end - base
        yield LogBatch(base, end, PositionAnchor(epoch, crc), is_cleaned)


def _heads_in(records: bytes | None) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield place, base offset, end offset, leader epoch and checksum of each batch."""
    if records is None:
        return
    unpack, at, size = _HEAD.unpack_from, 0, len(records)
    while at + _HEAD_BYTES <= size:
        base, length, epoch, record_format, crc, delta = unpack(records, at)
        begin, at = at, at + _BEFORE_LENGTH_ENDS + length
        # One that is cut off is fetched again; the client's parser refuses the answer that has a damaged one.
        if length < _LENGTH_MIN or at > size:
            return
        if record_format == _WITH_LEADER_EPOCH:
            yield begin, base, base + delta + 1, epoch, crc


class FetchedBatches:
    """The batches fetched of one partition since it was followed from a position."""

    __slots__ = ("_anchors", "_ends", "latest_epoch")

    def __init__(self, position: int, anchor: PositionAnchor | None) -> None:
        """Take `anchor`: what lies below the position, if that is known."""
        self._ends = [position]
        # A batch may hold one record: tuples cost half of what objects do.
        self._anchors = [None if anchor is None else (anchor.leader_epoch, anchor.crc32c)]
        self.latest_epoch = anchor.leader_epoch if anchor is not None else -1

    def add(self, records: bytes | None) -> bool:
        """Add the next answer.

        Returns:
            Whether its leader epochs do not follow those before.
        """
        fell, latest, last_end = False, self.latest_epoch, self._ends[-1]
        for _, _, end, epoch, crc in _heads_in(records):
            if epoch != latest:
                fell = fell or epoch < latest
                latest = epoch
            if end > last_end:
                last_end = end
                self._ends.append(end)
                self._anchors.append((epoch, crc))
        self.latest_epoch = latest
        return fell

    def below(self, position: int) -> PositionAnchor | None:
        """Return what lies directly below a position that these fetches have led to; None when it is not known."""
        index = bisect_left(self._ends, position)
        found = self._anchors[index] if index < len(self._ends) else None
        return PositionAnchor(*found) if found is not None else None

    def forget_before(self, position: int) -> None:
        """Drop what lies before this position: nobody asks for it any more."""
        index = bisect_left(self._ends, position)
        del self._ends[:index], self._anchors[:index]
        if not self._ends:
            self._ends, self._anchors = [position], [None]


async def batch_at(
    client: AIOKafkaClient, partition: TopicPartition, offset: int, ids: Mapping[str, str]
) -> LogBatch | None:
    """Return the batch that holds this offset; None when it is gone, trimmed or compacted.

    Raises:
        KafkaError: ask again; also when the answer was empty.
    """
    wanted = [(partition.topic, [(partition.partition, offset, _ONE_BATCH)])]
    fetch = FetchRequest(_WAIT_MS, 1, _ONE_BATCH, READ_UNCOMMITTED, wanted)
    asked = FetchById(fetch, ids) if ids.get(partition.topic) else fetch
    answer = await client.send(await _leader(client, partition), asked)
    if isinstance(asked, FetchById):
        answer = asked.named(answer)
    if code := getattr(answer, "error_code", 0):
        raise for_code(code)(f"fetching {partition}")
    ((_, ((_, code, *_, records),)),) = answer.topics
    if code == _OUT_OF_RANGE:
        return None
    if code:
        raise for_code(code)(f"fetching {partition}")
    if not records:
        raise LeaderNotAvailableError(f"{partition} has nothing yet at offset {offset}")
    first = next(batches_in(records), None)
    return first if first is not None and first.base_offset <= offset < first.end_offset else None


async def epoch_end(client: AIOKafkaClient, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
    """Return the newest leader epoch up to `leader_epoch` that the log has, and where it ends; None when the broker
    does not know or is too old to be asked.

    Raises:
        KafkaError: ask again.
    """
    asked = LeaderEpochEnds(partition.topic, partition.partition, leader_epoch)
    try:
        answer = await client.send(await _leader(client, partition), asked)
    except IncompatibleBrokerVersion:
        return None
    ((_, ((code, _, epoch, end_offset, _),), _),) = answer.topics
    if code:
        raise for_code(code)(f"asking {partition} for leader epoch {leader_epoch}")
    return EpochEnd(epoch, end_offset) if _UNDEFINED not in (epoch, end_offset) else None


async def _leader(client: AIOKafkaClient, partition: TopicPartition) -> int:
    await client.add_topic(partition.topic)
    source = ClientPartition(*partition)
    leader = client.cluster.leader_for_partition(source)
    if leader is None or leader == _UNDEFINED:
        await client.force_metadata_update()
        leader = client.cluster.leader_for_partition(source)
    if leader is None or leader == _UNDEFINED:
        raise LeaderNotAvailableError(str(partition))
    return int(leader)

"""Fetching by topic id (KIP-516, Kafka 3.1), which aiokafka 0.14.0 does not do.

Each fetch may name the leader epoch of what was read before its offset. A broker whose log went another way says where
it did (KIP-595): replicas ask like this, and brokers answer everybody.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.types import CompactArray, CompactBytes, Int8, Int16, Int32, Int64

from snapreplay.service.kafka.protocol_fields import (
    NO_TAGS,
    TEXT,
    TopicId,
    array_of,
    flexible,
    struct_of,
)
from snapreplay.service.ports import EpochEnd

_UNKNOWN_TOPIC = 3
# UNKNOWN_TOPIC_ID and INCONSISTENT_TOPIC_ID, which the client does not know.
_NO_SUCH_ID = {100, 103}
_NO_EPOCH = -1
_DIVERGING_EPOCH_TAG = 0
_EPOCH_END = struct.Struct(">iq")


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
        self,
        fetch: FetchRequest,
        ids: Mapping[str, str],
        epochs: Mapping[tuple[str, int], int] = NO_EPOCHS,
    ) -> None:
        super().__init__(
            fetch._max_wait_ms,
            fetch._min_bytes,
            fetch._max_bytes,
            fetch._isolation_level,
            fetch.topics,
            fetch._rack_id,
        )
        self._ids = ids
        self._names = {topic_id: name for name, topic_id in ids.items()}
        self._epochs = epochs

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is not _FetchByIdRequest:
            return super().build(request_struct_class)
        by_id = [
            (
                self._ids[topic],
                [
                    (
                        partition,
                        _NO_EPOCH,
                        offset,
                        self._epochs.get((topic, partition), _NO_EPOCH),
                        -1,
                        max_bytes,
                        NO_TAGS,
                    )
                    for partition, offset, max_bytes in partitions
                ],
                NO_TAGS,
            )
            for topic, partitions in self._topics
        ]
        return _FetchByIdRequest(
            -1,  # no replica
            self._max_wait_ms,
            self._min_bytes,
            self._max_bytes,
            self._isolation_level,
            0,
            -1,  # no session
            by_id,
            [],
            self._rack_id,
            NO_TAGS,
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
        """Return the partitions whose log went another way before the offset that was asked for, and up to where
        the broker has the same."""
        if answer.API_VERSION != _FetchByIdRequest.API_VERSION:
            return {}
        return {
            (self._names[topic_id], partition): EpochEnd(
                *_EPOCH_END.unpack_from(tags[_DIVERGING_EPOCH_TAG])
            )
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
        _UNKNOWN_TOPIC if error_code in _NO_SUCH_ID else error_code,
        *offsets,
        [(producer_id, first_offset) for producer_id, first_offset, _ in aborted or ()],
        preferred_read_replica,
        records or b"",
    )

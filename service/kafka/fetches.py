"""Fetch requests: by topic id (version 13: KIP-516, Kafka 3.1), else by name (version 12), which aiokafka 0.14.0 does
not have, and what a leader says that its log holds (KIP-320).

Each fetch may name the leader epoch of what was read before its offset. A broker whose log went another way says where
it did (KIP-595): replicas ask like this, and brokers answer everybody.

A position is behind a record, an aborted record or a marker. Whatever it is, a batch of the log holds the offset below
it. The batch's head has the leader epoch under which it was written and the checksum of all that it holds.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from aiokafka.errors import IncompatibleBrokerVersion, LeaderNotAvailableError, for_code
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.types import CompactArray, CompactBytes, Int8, Int16, Int32, Int64

from snapreplay.service.kafka.cursors import Answered
from snapreplay.service.kafka.log_ends import NO_LEADER
from snapreplay.service.kafka.records import batches_in
from snapreplay.service.kafka.requests import (
    NO_TAGS,
    TEXT,
    OffsetForLeaderEpoch,
    TopicId,
    array_of,
    flexible,
    spoken,
    struct_of,
)
from snapreplay.service.ports import EpochEnd, LogBatch, TopicPartition

if TYPE_CHECKING:
    from snapreplay.service.kafka.shared import Client

_OUT_OF_RANGE = 1
_NO_EPOCH = _UNDEFINED = -1
_NO_SESSION = (0, -1)
_DIVERGING_EPOCH_TAG = 0
_EPOCH_END = struct.Struct(">iq")

_WAIT_MS = 500
_ONE_BATCH = 1  # byte: a broker answers with one whole batch at least (KIP-74)


def _version(number: int, **topic: Any) -> type[RequestStruct]:
    """Make the struct of one version, in which a topic is named by this field."""
    return struct_of(
        "Fetch",
        Fetch.API_KEY,
        number,
        asked=flexible(
            replica_id=Int32,
            max_wait_time=Int32,
            min_bytes=Int32,
            max_bytes=Int32,
            isolation_level=Int8,
            session_id=Int32,
            session_epoch=Int32,
            topics=array_of(
                **topic,
                partitions=array_of(
                    partition=Int32,
                    current_leader_epoch=Int32,
                    fetch_offset=Int64,
                    last_fetched_epoch=Int32,
                    log_start_offset=Int64,
                    max_bytes=Int32,
                ),
            ),
            forgotten_topics_data=array_of(**topic, partitions=CompactArray(Int32)),
            rack_id=TEXT,
        ),
        answered=flexible(
            throttle_time_ms=Int32,
            error_code=Int16,
            session_id=Int32,
            topics=array_of(
                **topic,
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


class Limits(NamedTuple):
    """What a broker may do before it answers a fetch, and how much it may answer."""

    read_committed: bool
    wait_ms: int
    partition_bytes: int
    max_bytes: int
    min_bytes: int = 1
    rack: str = ""
    checks_crcs: bool = True


class Wanted(NamedTuple):
    """A partition in a fetch: from which offset, and the leader epoch of what was read before it, -1 if unknown."""

    partition: TopicPartition
    offset: int
    epoch_below: int = _NO_EPOCH


Log: TypeAlias = tuple[str, int]
"""Topic id, or name, and number of a partition."""

LogWanted: TypeAlias = tuple[str, Wanted]
"""A partition in a shared fetch, with the topic id; "" if it is fetched by name."""


class Fetch:
    """A fetch of some partitions. By id if all ids are known: a broker that has another topic of this name then answers
    UNKNOWN_TOPIC_ID. By name, if one is not known or the broker is older than Kafka 3.1."""

    API_KEY = 1

    def __init__(self, limits: Limits, wanted: Sequence[Wanted], ids: Mapping[str, str]) -> None:
        """Take `ids`: topic → id, "" if there is none."""
        self.wait_ms = limits.wait_ms
        self._limits, self._wanted, self._ids = limits, wanted, ids

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        has_ids = all(self._ids.get(each.partition.topic) for each in self._wanted)
        struct_class = spoken("Fetch", (BY_ID, BY_NAME) if has_ids else (BY_NAME,), versions)
        is_by_id = struct_class is BY_ID
        named = [
            ((self._ids[each.partition.topic] if is_by_id else each.partition.topic, each.partition.partition), each)
            for each in self._wanted
        ]
        return self._built(struct_class, named, _NO_SESSION, ())

    def _built(
        self,
        struct_class: type[RequestStruct],
        named: Iterable[tuple[Log, Wanted]],
        session: tuple[int, int],
        forgotten: Iterable[Log],
    ) -> RequestStruct:
        limits, no_replica = self._limits, -1
        topics, dropped = dict[str, list[Any]](), dict[str, list[int]]()
        for (topic, number), (_, offset, epoch_below) in named:
            asked = (number, _NO_EPOCH, offset, epoch_below, -1, limits.partition_bytes, NO_TAGS)
            topics.setdefault(topic, []).append(asked)
        for topic, number in forgotten:
            dropped.setdefault(topic, []).append(number)
        return struct_class(
            no_replica,
            self.wait_ms,
            limits.min_bytes,
            limits.max_bytes,
            int(limits.read_committed),
            *session,
            *([(topic, numbers, NO_TAGS) for topic, numbers in each.items()] for each in (topics, dropped)),
            limits.rack,
            NO_TAGS,
        )

    def answers(self, answer: Any) -> dict[TopicPartition, Answered]:
        """Return the answer for each partition.

        Raises:
            KafkaError: the fetch was refused as a whole.
        """
        if answer.error_code:
            raise for_code(answer.error_code)("the whole fetch was refused")
        names: Mapping[str, str] = {}
        if answer.API_VERSION == BY_ID.API_VERSION:
            names = {self._ids[each.partition.topic]: each.partition.topic for each in self._wanted}
        return {
            TopicPartition(names.get(topic, topic), number): _answered(*rest)
            for topic, partitions, _ in answer.topics
            for number, *rest in partitions
        }


class SessionFetch(Fetch):
    """A fetch in a fetch session (KIP-227), by topic id only. The broker remembers the partitions of a session, and
    answers only for those that have changed."""

    def __init__(
        self, limits: Limits, session: tuple[int, int], named: Mapping[Log, Wanted], forgotten: Collection[Log]
    ) -> None:
        """Take `session`: its id, and the number of this fetch in it. Number 0 begins a new session, and ends this
        one."""
        super().__init__(limits, list(named.values()), {})
        self._session, self._named, self._forgotten = session, named, forgotten

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        return self._built(spoken("Fetch", (BY_ID,), versions), self._named.items(), self._session, self._forgotten)

    @staticmethod
    def changes(answer: Any) -> dict[Log, Answered]:
        """Return the answer for each partition that the broker names."""
        return {
            (topic_id, number): _answered(*rest)
            for topic_id, partitions, _ in answer.topics
            for number, *rest in partitions
        }


def _answered(
    error_code: int,
    high_watermark: int,
    last_stable_offset: int,
    _: int,
    aborted: Sequence[tuple[int, int, Any]] | None,
    preferred_replica: int,
    records: bytes | None,
    tags: Mapping[int, bytes],
) -> Answered:
    transactions = [(producer_id, first_offset) for producer_id, first_offset, _ in aborted or ()]
    diverging = tags.get(_DIVERGING_EPOCH_TAG)
    end = EpochEnd(*_EPOCH_END.unpack_from(diverging)) if diverging is not None else None
    return Answered(
        error_code, high_watermark, last_stable_offset, transactions, preferred_replica, records or b"", end
    )


BY_NAME, BY_ID = _version(12, name=TEXT), _version(13, topic_id=TopicId)


async def batch_at(client: Client, partition: TopicPartition, offset: int, ids: Mapping[str, str]) -> LogBatch | None:
    """Return the batch that holds this offset; None when it is gone, trimmed or compacted.

    Raises:
        KafkaError: ask again; also when the answer was empty.
    """
    limits = Limits(read_committed=False, wait_ms=_WAIT_MS, partition_bytes=_ONE_BATCH, max_bytes=_ONE_BATCH)
    fetch = Fetch(limits, [Wanted(partition, offset)], ids)
    (answer,) = fetch.answers(await client.send(await _leader(client, partition), fetch)).values()
    if answer.error_code == _OUT_OF_RANGE:
        return None
    if answer.error_code:
        raise for_code(answer.error_code)(f"fetching {partition}")
    if not answer.records:
        raise LeaderNotAvailableError(f"{partition} has nothing yet at offset {offset}")
    first = next(batches_in(answer.records), None)
    return first if first is not None and first.base_offset <= offset < first.end_offset else None


async def epoch_end(client: Client, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
    """Return the newest leader epoch up to `leader_epoch` that the log has, and where it ends; None when the broker
    does not know or is too old to be asked.

    Raises:
        KafkaError: ask again.
    """
    asked = OffsetForLeaderEpoch(partition.topic, partition.partition, leader_epoch)
    try:
        answer = await client.send(await _leader(client, partition), asked)
    except IncompatibleBrokerVersion:
        return None
    ((_, ((code, _, epoch, end_offset, _),), _),) = answer.topics
    if code:
        raise for_code(code)(f"asking {partition} for leader epoch {leader_epoch}")
    return EpochEnd(epoch, end_offset) if _UNDEFINED not in (epoch, end_offset) else None


async def _leader(client: Client, partition: TopicPartition) -> int:
    await client.shared.track([partition.topic])
    if client.leader(partition) == NO_LEADER:
        await client.shared.refresh()
    if client.leader(partition) == NO_LEADER:
        raise LeaderNotAvailableError(str(partition))
    return client.leader(partition)

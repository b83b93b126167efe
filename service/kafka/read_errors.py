"""The ends of reading a partition: what is gone, out of range or stalled, with the facts, and record batches that are
damaged: tried again with other clients, then reported, never read for ever."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import CorruptRecordException, TopicAuthorizationFailedError, UnsupportedCodecError
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.app.record import InputRecord
from snapreplay.app.ways import MODULE, look_again
from snapreplay.errors import DamagedError, SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed, ReadStalled, TopicGone
from snapreplay.service.kafka.errors import Asked, client_error
from snapreplay.service.ports import Bounds, TopicPartition

ATTEMPTS_MAX = 3
# More than one fetch of the smallest records holds.
WARY_RECORDS = 30_000


class CorruptBatches:
    """The damaged batches that a reader has met.

    The client raises before it returns what lay before a damaged batch in the same fetch, and does not say where the
    batch is. So after the first one, records are taken one by one for a while: the good ones come out, and then the
    position is that of the damaged batch.
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
                " then"
                f" {look_again(partition.partition)}. Before the broker is started again, remove the directory"
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
        f" {bounds.end_offset}: the leader is stale, or the log is shorter than it was",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        **bounds._asdict(),
    )


def gone(partition: TopicPartition, topic_id: str) -> TopicGone:
    which = f"topic {partition.topic} with the id {topic_id}" if topic_id else str(partition)
    return TopicGone(f"{which} does not exist any more", topic=partition.topic, topic_id=topic_id)


def stalled(partition: TopicPartition, position: int, end_offset: int, seconds: float) -> ReadStalled:
    return ReadStalled(
        f"reading {partition} has not moved from offset {position} of {end_offset} for {seconds:.0f} s",
        hint=f"`snapreplay doctor {MODULE}` shows which partitions have no leader",
        topic=partition.topic,
        partition=partition.partition,
        position=position,
        end_offset=end_offset,
    )


def cut_off(partition: TopicPartition, position: int, size_bytes: int, seconds: float) -> ReadStalled:
    return ReadStalled(
        f"reading {partition} has not moved from offset {position} for {seconds:.0f} s: every answer to a fetch ends"
        f" inside of its first record batch, the last one after {size_bytes} bytes",
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

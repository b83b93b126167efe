"""Record batches whose checksum is wrong: tried again with other clients, then reported, never read for ever."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CorruptRecordException
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.app.record import InputRecord
from snapreplay.app.ways import look_again
from snapreplay.errors import DamagedError
from snapreplay.service.ports import TopicPartition

ATTEMPTS_MAX = 3
# More than one fetch of the smallest records holds.
WARY_RECORDS = 30_000


class CorruptBatches:
    """What a reader knows of them.

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
        """A poll of many records met a damaged batch."""
        self._wary_records = WARY_RECORDS

    async def one(
        self, consumer: AIOKafkaConsumer, partition: TopicPartition, position: int, timeout_ms: int
    ) -> list[InputRecord] | None:
        """The next record of a partition, or none; None when its batch is damaged, and a new client is to try.

        Raises:
            DamagedError: that was the last attempt.
        """
        source = ClientPartition(*partition)
        try:
            fetched = await consumer.getmany(source, timeout_ms=timeout_ms, max_records=1)
        except CorruptRecordException as error:
            self._count(partition, position, error)
            return None
        self._wary_records -= 1
        records: list[InputRecord] = fetched.get(source, [])
        return records

    def _count(self, partition: TopicPartition, position: int, error: Exception) -> None:
        again = self._at == (partition, position)
        self._at, self._attempts = (partition, position), self._attempts + 1 if again else 1
        self._wary_records = WARY_RECORDS
        if self._attempts >= ATTEMPTS_MAX:
            raise DamagedError(
                f"{partition} offset {position}: the record batch failed its checksum {self._attempts} times in a row",
                hint="the leader's copy is damaged. Find the leader with"
                f" `kafka-topics.sh --bootstrap-server HOST:PORT --describe --topic {partition.topic}`;"
                " stop that broker, so that an intact replica leads, then"
                f" {look_again(partition.partition)}. Before the broker is started again, remove the directory"
                f" {partition} from its log.dirs: the broker then copies the partition again",
                topic=partition.topic,
                partition=partition.partition,
                offset=position,
            ) from error

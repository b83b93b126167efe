"""The records of an audited log: on a real broker, or in memory with the same offsets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from snapreplay.app.names import increments_topic, snapshots_topic
from snapreplay.app.record import InputRecord, RawRecord
from snapreplay.snapshots.format.seal import Seals
from tests.support.deadlines import scaled

DEADLINE_S = scaled(30)
CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
Values = Mapping[int, Sequence[bytes]]
"""Partition → values of its records."""
Offsets = dict[int, list[int]]


class Topics(Protocol):
    """Writes records; each method gives their offsets."""

    def create(self, names: Iterable[str], partition_count: int) -> None: ...
    def append(self, topic: str, values: Values) -> Offsets: ...
    def commit(self, topic: str, values: Values) -> Offsets: ...
    def abort(self, topic: str, values: Values) -> None: ...
    def trim(self, topic: str, partition: int, before_offset: int) -> None: ...


class BrokerTopics:
    """The topics by another client than the product's."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        common = {"bootstrap.servers": bootstrap_servers, "linger.ms": 0}
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._plain = Producer(common | {"enable.idempotence": True})
        self._transactional = Producer(common | {"transactional.id": transactional_id})
        self._transactional.init_transactions(DEADLINE_S)

    def create(self, names: Iterable[str], partition_count: int) -> None:
        topics = [NewTopic(name, partition_count, 1, config=CONFIG) for name in names]
        for created in self._admin.create_topics(topics).values():
            created.result(DEADLINE_S)

    def append(self, topic: str, values: Values) -> Offsets:
        return _produced(self._plain, topic, values)

    def commit(self, topic: str, values: Values) -> Offsets:
        offsets = self.open_transaction(topic, values)
        self._transactional.commit_transaction(DEADLINE_S)
        return offsets

    def abort(self, topic: str, values: Values) -> None:
        self.open_transaction(topic, values)
        self._transactional.abort_transaction(DEADLINE_S)

    def open_transaction(self, topic: str, values: Values) -> Offsets:
        """It holds back the last stable offset."""
        self._transactional.begin_transaction()
        return _produced(self._transactional, topic, values)

    def trim(self, topic: str, partition: int, before_offset: int) -> None:
        place = TopicPartition(topic, partition, before_offset)
        for deleted in self._admin.delete_records([place]).values():
            deleted.result(DEADLINE_S)


def _produced(producer: Producer, topic: str, values: Values) -> Offsets:
    offsets: Offsets = {number: [] for number in values}

    def noting(number: int):
        def note(error, message) -> None:
            assert error is None, error
            offsets[number].append(message.offset())

        return note

    for number, records in values.items():
        for value in records:
            producer.produce(topic, value, partition=number, on_delivery=noting(number))
    producer.flush(DEADLINE_S)
    assert [len(records) for records in values.values()] == [len(o) for o in offsets.values()]
    return offsets


@dataclass
class _Log:
    records: list[RawRecord] = field(default_factory=list)
    start: int = 0
    end: int = 0


class MemoryTopics:
    """A marker takes an offset behind each transaction, aborted records take theirs and are never read."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, int], _Log] = {}

    def create(self, names: Iterable[str], partition_count: int) -> None:
        self._logs |= {
            (name, number): _Log() for name in names for number in range(partition_count)
        }

    def append(self, topic: str, values: Values) -> Offsets:
        offsets: Offsets = {}
        for number, records in values.items():
            log = self._logs[topic, number]
            offsets[number] = list(range(log.end, log.end + len(records)))
            log.records += [
                RawRecord(topic, number, offset, 0, None, value)
                for offset, value in zip(offsets[number], records, strict=True)
            ]
            log.end += len(records)
        return offsets

    def commit(self, topic: str, values: Values) -> Offsets:
        offsets = self.append(topic, values)
        self._mark(topic, values)
        return offsets

    def abort(self, topic: str, values: Values) -> None:
        for number, records in values.items():
            self._logs[topic, number].end += len(records)
        self._mark(topic, values)

    def trim(self, topic: str, partition: int, before_offset: int) -> None:
        log = self._logs[topic, partition]
        log.start = before_offset
        log.records = [record for record in log.records if record.offset >= before_offset]

    def places(self) -> list[tuple[str, int]]:
        return list(self._logs)

    def cut(self, topic: str, partition: int, end_offset: int) -> None:
        """Cut as an unclean election does, or a topic that was created again."""
        log = self._logs[topic, partition]
        log.records = [record for record in log.records if record.offset < end_offset]
        log.end = end_offset

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        log = self._logs[topic, partition]
        return log.start, log.end

    def read(
        self, topic: str, partition: int, start_offset: int, end_offset: int
    ) -> Iterator[Sequence[InputRecord]]:
        """Read in slices of three."""
        log = self._logs[topic, partition]
        assert start_offset >= log.start
        records = [r for r in log.records if start_offset <= r.offset < end_offset]
        for first in range(0, len(records), 3):
            yield records[first : first + 3]

    def _mark(self, topic: str, values: Values) -> None:
        for number, records in values.items():
            self._logs[topic, number].end += bool(records)


class MemoryLogs:
    """`proof.Logs` of one partition."""

    seals: Seals | None = None

    def __init__(self, topics: MemoryTopics, app_id: str, partition: int) -> None:
        self._topics = topics
        self._app_id = app_id
        self._partition = partition

    def increments(self, start_offset: int, end_offset: int) -> Iterator[Sequence[InputRecord]]:
        topic = increments_topic(self._app_id)
        return self._topics.read(topic, self._partition, start_offset, end_offset)

    def snapshots(self, start_offset: int, end_offset: int) -> Iterator[Sequence[InputRecord]]:
        topic = snapshots_topic(self._app_id)
        return self._topics.read(topic, self._partition, start_offset, end_offset)

"""The records of an audited log: on a real broker, or in memory with the same offsets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from snapreplay.app.names import increments_topic, snapshots_topic
from snapreplay.app.record import InputRecord
from snapreplay.service.ports import TopicPartition as Place
from tests.simulation.log import Log, Transaction, TxnState
from tests.support.deadlines import scaled
from tests.support.waiting import eventually

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
        eventually(lambda: self._is_decided(topic, offsets), f"the markers of a commit in {topic}")
        return offsets

    def abort(self, topic: str, values: Values) -> None:
        self.open_transaction(topic, values)
        self._transactional.abort_transaction(DEADLINE_S)

    def open_transaction(self, topic: str, values: Values) -> Offsets:
        """It holds back the last stable offset."""
        self._transactional.begin_transaction()
        return _produced(self._transactional, topic, values)

    def _is_decided(self, topic: str, offsets: Offsets) -> bool:
        """Say whether a reader of what is committed gets these records: a commit is answered before its markers."""
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number, written in offsets.items() if written}
        ends = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return all(end.result(DEADLINE_S).offset > offsets[place.partition][-1] for place, end in ends.items())

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


class MemoryTopics:
    """The topics as the simulator's logs; given ones, or those that are created."""

    def __init__(self, logs: dict[Place, Log] | None = None) -> None:
        self._logs = {} if logs is None else logs

    def create(self, names: Iterable[str], partition_count: int) -> None:
        places = [Place(name, number) for name in names for number in range(partition_count)]
        self._logs |= {place: Log(place) for place in places}

    def append(self, topic: str, values: Values, transaction: Transaction | None = None) -> Offsets:
        return {
            number: [self._log(topic, number).append(None, value, (), 0, transaction) for value in records]
            for number, records in values.items()
        }

    def commit(self, topic: str, values: Values) -> Offsets:
        return self._decide(topic, values, TxnState.COMMITTED)

    def abort(self, topic: str, values: Values) -> None:
        self._decide(topic, values, TxnState.ABORTED)

    def trim(self, topic: str, partition: int, before_offset: int) -> None:
        self._log(topic, partition).trim(before_offset)

    def places(self) -> list[Place]:
        return list(self._logs)

    def cut(self, topic: str, partition: int, end_offset: int) -> None:
        """Cut as an unclean election does, or a topic that was created again."""
        self._log(topic, partition).cut(end_offset)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        log = self._log(topic, partition)
        return log.start, log.end

    def read(self, topic: str, partition: int, start_offset: int, end_offset: int) -> Iterator[Sequence[InputRecord]]:
        """Read in slices of three."""
        log = self._log(topic, partition)
        assert start_offset >= log.start
        found = (
            log.visible(offset, committed_only=True) for offset in range(start_offset, min(end_offset, log.stable))
        )
        records = [record for record in found if record is not None]
        for first in range(0, len(records), 3):
            yield records[first : first + 3]

    def _log(self, topic: str, partition: int) -> Log:
        return self._logs[Place(topic, partition)]

    def _decide(self, topic: str, values: Values, state: TxnState) -> Offsets:
        """A transaction, and its marker where it has written something."""
        transaction = Transaction("story", 0, 0.0)
        offsets = self.append(topic, values, transaction)
        transaction.state = state
        for number in (number for number, records in values.items() if records):
            self._log(topic, number).mark(transaction)
        return offsets


class MemoryLogs:
    """`proof.Logs` of one partition."""

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

    def input(self, topic: str, start_offset: int, end_offset: int) -> Iterator[Sequence[InputRecord]]:
        return self._topics.read(topic, self._partition, start_offset, end_offset)

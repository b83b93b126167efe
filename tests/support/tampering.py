"""Logs that are not as they were written: topics read record by record and written again with a difference,
trimmed, deleted."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from snapreplay.snapshots.format.envelope import HEADER_BYTES, RecordKind, decode, encode, kind_of
from snapreplay.snapshots.format.records import LogEntry
from tests.support import reference
from tests.support.deadlines import scaled
from tests.support.entries import rewrapped
from tests.support.stage import Stage
from tests.support.waiting import eventually

DEADLINE_SECONDS = scaled(20.0)

Change = Callable[[bytes], bytes | None]
"""From a record's value to the one to write instead; None leaves it out, and all behind it."""


async def tamper(stage: Stage, topic: str, kind: RecordKind, change: Change, number: int = -1) -> reference.Read:
    """Change the last record of this kind (or another, by `number`) in a topic of one partition; returns it as
    it was.

    The topic is deleted and written again, every record at its old offset; where a transaction marker was,
    a foreign record fills the gap: recovery leaves those alone.
    """
    (records,) = await stage.read(topic)
    target = [r for r in records if kind_of(r.value or b"") is kind][number]
    values = [change(r.value or b"") if r is target else r.value for r in records]
    await asyncio.to_thread(_rewrite, stage.bootstrap_servers, topic, records, values)
    return target


def bring_back(servers: str, topic: str, records: list[reference.Read]) -> None:
    """Bring a topic back as a backup does: a new topic, every record at its old offset."""
    _rewrite(servers, topic, records, [record.value for record in records])


def _rewrite(servers: str, topic: str, records: list[reference.Read], values: list[bytes | None]) -> None:
    recreate(servers, topic, 1, KEPT_FOR_EVER)
    producer = Producer({"bootstrap.servers": servers})
    end_offset = 0
    for record, value in zip(records, values, strict=True):
        if value is None:
            break
        for _ in range(end_offset, record.offset):
            producer.produce(topic, value=b"filler", partition=0)
        headers: list[Any] = list(record.headers)
        producer.produce(topic, key=record.key, value=value, partition=0, headers=headers)
        end_offset = record.offset + 1
    assert producer.flush(DEADLINE_SECONDS) == 0


def topic_id(servers: str, topic: str) -> str:
    """Return the id as another client shows it, in the alphabet of Kafka's tools."""
    admin = AdminClient({"bootstrap.servers": servers})
    asked = admin.describe_topics(TopicCollection([topic]))
    shown = str(asked[topic].result(DEADLINE_SECONDS).topic_id)
    return shown.replace("+", "-").replace("/", "_")


def topics(servers: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=DEADLINE_SECONDS).topics)


def partition_count(servers: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": servers})
    return len(admin.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions)


def end_offset(servers: str, topic: str, partition: int = 0) -> int:
    """High watermark; 0 when there is no such topic."""
    return _bounds(servers, topic, partition)[1]


def log_start(servers: str, topic: str, partition: int = 0) -> int:
    """The first offset that is still there; 0 when there is no such topic."""
    return _bounds(servers, topic, partition)[0]


def _bounds(servers: str, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ends"})
    try:
        first, end = consumer.get_watermark_offsets(Place(topic, partition), DEADLINE_SECONDS)
        return int(first), int(end)
    except KafkaException:
        return 0, 0
    finally:
        consumer.close()


def group(servers: str, name: str, topic: str, request: str) -> None:
    """`request`: delete the group, or reset its offsets to the earliest. A group that has members refuses both."""
    admin = AdminClient({"bootstrap.servers": servers})
    try:
        if request == "delete":
            _done(admin.delete_consumer_groups([name]))
        else:
            wanted = [ConsumerGroupTopicPartitions(name, [Place(topic, 0, 0)])]
            _done(admin.alter_consumer_group_offsets(wanted))
    except KafkaException as error:
        if not any(each in str(error) for each in ("NON_EMPTY_GROUP", "UNKNOWN_MEMBER_ID")):
            raise


def create(servers: str, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Create a topic; when this returns it is there, empty, with leaders; a deletion that is under way is waited
    for."""
    admin = AdminClient({"bootstrap.servers": servers})
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        assert time.monotonic() < deadline, f"{topic} cannot be created"
        try:
            new = NewTopic(topic, partitions, 1, config=dict(config or {}))
            admin.create_topics([new])[topic].result()
        except KafkaException:  # the deletion is not done yet
            continue
        break
    while _leaders(admin, topic) != partitions:
        assert time.monotonic() < deadline, f"{topic} has no leaders"


def recreate(servers: str, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
    """Delete and create; when this returns the new topic is there, empty, with leaders."""
    delete(servers, topic)
    create(servers, topic, partitions, config)


def _leaders(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions.values()
    return sum(partition.leader >= 0 for partition in found)


async def copy_again(stage: Stage, topic: str, count: int) -> None:
    records = await asyncio.to_thread(messages, stage.bootstrap_servers, topic, count)
    await asyncio.to_thread(replace, stage.bootstrap_servers, topic, records)


def replace(servers: str, topic: str, records: list[Any]) -> None:
    """Delete the topic of one partition and write these messages to a new one."""
    recreate(servers, topic, 1)
    write_again(servers, topic, records)


def write_again(servers: str, topic: str, records: list[Any]) -> None:
    """These messages to partition 0, each with its key, headers and timestamp."""
    producer = Producer({"bootstrap.servers": servers})
    for each in records:
        producer.produce(topic, each.value(), each.key(), 0, timestamp=each.timestamp()[1], headers=each.headers())
    assert producer.flush(DEADLINE_SECONDS) == 0


def append(servers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0


def messages(servers: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "copy"})
    consumer.assign([Place(topic, 0, 0)])
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{topic} holds {len(found)} records"
        found += consumer.consume(count - len(found), 1.0)
    consumer.close()
    return found


def delete(servers: str, *topics: str) -> None:
    """Returns when the cluster lists them no more."""
    admin = AdminClient({"bootstrap.servers": servers})
    _done(admin.delete_topics(list(topics)))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while set(topics) & set(admin.list_topics(timeout=DEADLINE_SECONDS).topics):
        assert time.monotonic() < deadline, f"{topics} are not gone"


def trim(servers: str, topic: str, partition: int, before_offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    _done(admin.delete_records([Place(topic, partition, before_offset)]))


def grow(servers: str, topic: str, partitions: int) -> None:
    """Give a topic so many partitions. When this returns the brokers tell them: the controller answers before."""
    admin = AdminClient({"bootstrap.servers": servers})
    _done(admin.create_partitions([NewPartitions(topic, partitions)]))
    eventually(lambda: partition_count(servers, topic) == partitions, f"{topic} with {partitions} partitions")


def configure(servers: str, topic: str, name: str, value: str) -> None:
    """Change one setting of a topic; the others stay. When this returns a broker tells the new value: the controller
    answers before."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    _done(admin.incremental_alter_configs([resource]))

    def told() -> str:
        (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        return str(found.result(DEADLINE_SECONDS)[name].value)

    eventually(lambda: told() == value, f"{topic} with {name}={value}")


def _done(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(DEADLINE_SECONDS)


# ------------------------------------------------------------------------- changes to a value


def flip(value: bytes) -> bytes:
    """One bit in the middle of the body."""
    at = HEADER_BYTES + (len(value) - HEADER_BYTES) // 2
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


def cut(value: bytes) -> None:
    """The record is gone, and the log ends before it."""


def of_version(version: int) -> Change:
    """The same record as a newer build might write it: intact, of another format version."""
    return partial(rewrapped, version=version)


def with_fields(**fields: Any) -> Change:
    """The same record with other contents and a right checksum: what a defect or a forger would write."""

    def change(value: bytes) -> bytes:
        entry: LogEntry = msgspec.structs.replace(decode(value), **fields)
        return encode(entry)

    return change

"""Logs that are not as they were written: topics read record by record and written anew with a difference,
trimmed, deleted."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from snapreplay.service.topics import KEPT_FOR_EVER
from snapreplay.snapshots.format.envelope import HEADER_BYTES, Kind, decode, encode, kind_of
from snapreplay.snapshots.format.records import LogEntry
from tests.support.reference import Read
from tests.support.stage import Stage

DEADLINE_SECONDS = 20.0

Change = Callable[[Read], bytes | None]
"""The value to write instead of a record's own; None leaves it out, and all behind it."""


async def rewrite(stage: Stage, topic: str, change: Change) -> None:
    """Delete a topic of one partition and write it again, every record at its old offset.

    Where a transaction marker was, a foreign record fills the gap: recovery leaves those alone.
    """
    (records,) = await stage.read(topic)
    await asyncio.to_thread(_rewrite, stage.bootstrap_servers, topic, records, change)


def _rewrite(servers: str, topic: str, records: list[Read], change: Change) -> None:
    recreate(servers, topic, 1, KEPT_FOR_EVER)
    producer = Producer({"bootstrap.servers": servers})
    offset = 0
    for record in records:
        value = change(record)
        if value is None:
            break
        for _ in range(offset, record.offset):
            producer.produce(topic, value=b"filler", partition=0)
        producer.produce(topic, key=record.key, value=value, partition=0, headers=list(record.headers))
        offset = record.offset + 1
    assert producer.flush(DEADLINE_SECONDS) == 0


def recreate(servers: str, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
    """Delete and create; when this returns the new topic is there and empty."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_topics([topic]).values():
        future.result(DEADLINE_SECONDS)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        wanted = NewTopic(topic, partitions, 1, config=config or {})
        try:
            admin.create_topics([wanted])[topic].result(DEADLINE_SECONDS)
        except KafkaException:  # the deletion is not done yet
            assert time.monotonic() < deadline, f"{topic} cannot be created again"
        else:
            return


def delete(servers: str, *topics: str) -> None:
    for future in AdminClient({"bootstrap.servers": servers}).delete_topics(list(topics)).values():
        future.result(DEADLINE_SECONDS)


def trim(servers: str, topic: str, partition: int, before_offset: int) -> None:
    """DeleteRecords."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([Place(topic, partition, before_offset)]).values():
        future.result(DEADLINE_SECONDS)


def grow(servers: str, topic: str, partitions: int) -> None:
    """Add partitions."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(DEADLINE_SECONDS)


# ------------------------------------------------------------------------- changes to a log


def flip(kind: Kind, number: int = -1, records: list[Read] | None = None) -> Change:
    """One bit flipped in the middle of the body of the last record of this kind (or another, by `number`)."""
    return altered(kind, _flip_one, number, records)


def altered(
    kind: Kind, change: Callable[[bytes], bytes], number: int = -1, records: list[Read] | None = None
) -> Change:
    """`change` applied to one record of this kind among `records`."""
    of_kind = [r.offset for r in records or [] if kind_of(r.value or b"") is kind]
    target = of_kind[number]

    def apply(record: Read) -> bytes | None:
        return change(record.value or b"") if record.offset == target else record.value

    return apply


def _flip_one(value: bytes) -> bytes:
    at = HEADER_BYTES + (len(value) - HEADER_BYTES) // 2
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


def of_version(version: int) -> Callable[[bytes], bytes]:
    """The same record as a newer build might write it: intact, of another format version."""

    def change(value: bytes) -> bytes:
        described = bytes([version]) + value[5:8]
        checksum = zlib.crc32(value[HEADER_BYTES:], zlib.crc32(described))
        return value[:4] + described + checksum.to_bytes(4, "big") + value[HEADER_BYTES:]

    return change


def with_fields(**fields: Any) -> Callable[[bytes], bytes]:
    """The same record with other contents and a right checksum: what a defect or a forger would write."""

    def change(value: bytes) -> bytes:
        entry: LogEntry = msgspec.structs.replace(decode(value), **fields)
        return encode(entry)

    return change

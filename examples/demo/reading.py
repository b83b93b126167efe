"""Reads whole topics back with librdkafka, a witness that shares nothing with the service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from examples.demo.failed import DemoFailed
from examples.demo.names import PARTITIONS
from examples.demo.topics import quiet
from examples.demo.verify import Input, Output

SILENCE_S = 30.0
AT_ONCE = 10_000

END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka spells its own codes so; it is public


def messages(bootstrap_servers: str, topic: str, *, read_committed: bool = True) -> Iterator[Message]:
    """Yield all records of the topic up to its present end, in order of offset within each partition.

    Raises:
        DemoFailed: the cluster was silent for half a minute, or answered with an error.
    """
    consumer = Consumer(
        quiet(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "unused",  # required, but never joined: partitions are assigned by hand
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,  # only an empty answer shows an end
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            }
        )
    )
    try:
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        consumer.assign(places)
        yield from _until_all_ends(consumer, topic)
    finally:
        consumer.close()


def _until_all_ends(consumer: Consumer, topic: str) -> Iterator[Message]:
    ended: set[int | None] = set()
    answered_at = time.monotonic()
    while len(ended) < PARTITIONS:
        batch = consumer.consume(AT_ONCE, timeout=0.2)
        for message in batch:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == END:
                ended.add(message.partition())
            elif not error.retriable():
                raise DemoFailed(f"reading {topic}: {error}")
        now = time.monotonic()
        if batch:
            answered_at = now
        elif now - answered_at > SILENCE_S:
            raise DemoFailed(f"reading {topic}: no answer for {SILENCE_S:.0f} s")


def inputs(bootstrap_servers: str, topic: str) -> Iterator[Input]:
    """Return the flights as they are in Kafka."""
    for message in messages(bootstrap_servers, topic):
        yield Input(*_place(message), _key(message), json.loads(message.value() or b""))


def outputs(bootstrap_servers: str, topic: str) -> Iterator[Output]:
    """Return what a careful consumer sees: committed transactions only."""
    for message in messages(bootstrap_servers, topic):
        yield Output(*_place(message), _key(message), json.loads(message.value() or b""))


def written(bootstrap_servers: str, topic: str) -> int:
    """Count the records in the topic, those of aborted transactions included."""
    return sum(1 for _ in messages(bootstrap_servers, topic, read_committed=False))


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise DemoFailed(f"a record without a place: {message.topic()}")
    return partition, offset


def _key(message: Message) -> str:
    key = message.key()
    return key.decode() if isinstance(key, bytes) else str(key)

"""Loads the flights into the input topic, as fast as librdkafka takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, Message, Producer

from examples.demo.data import Row
from examples.demo.failed import DemoFailed
from examples.demo.topics import Value, quiet

FLUSH_S = 60.0
EVERY_ROWS = 5_000  # serve delivery reports, tell the progress

OnProgress = Callable[[int], None]


def load(bootstrap_servers: str, topic: str, rows: Iterable[Row], on_progress: OnProgress) -> int:
    """Produce every row, in order per key. Returns how many were acknowledged: all of them.

    Args:
        on_progress: called now and then with the number of rows produced so far.

    Raises:
        DemoFailed: a record was refused, or not acknowledged in time.
    """
    refused: list[str] = []
    producer = Producer(_configuration(bootstrap_servers))
    count = 0
    for row in rows:
        _produce(producer, topic, row, refused)
        count += 1
        if count % EVERY_ROWS == 0:
            producer.poll(0)
            on_progress(count)
    unacknowledged = producer.flush(FLUSH_S)
    if refused or unacknowledged:
        raise DemoFailed(
            f"loading {topic}: {unacknowledged} of {count} records were not acknowledged"
            f" within {FLUSH_S:.0f} s, {len(refused)} refused; first: {refused[:1]}"
        )
    on_progress(count)
    return count


def _configuration(bootstrap_servers: str) -> dict[str, Value]:
    return quiet(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,  # a retry must not make two flights of one
            "partitioner": "murmur2_random",  # Java's and ours; librdkafka's own differs
            "compression.type": "none",  # the loopback interface costs less than compressing
            "linger.ms": 20,
        }
    )


def _produce(producer: Producer, topic: str, row: Row, refused: list[str]) -> None:
    def answered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(str(error))

    taken = False
    while not taken:
        try:
            producer.produce(topic, row.value, row.key, timestamp=row.timestamp_ms, on_delivery=answered)
            taken = True
        except BufferError:  # the queue is full: serve answers until there is room
            producer.poll(0.1)

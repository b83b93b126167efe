"""Input for `tests.checker.app`: seeded, at a bounded rate, acknowledged in the end."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

from confluent_kafka import Producer

KEYS = 200
TICK_S = 0.02
FLUSH_S = 120.0
TOPICS = ("payments", "payments", "refunds")
"""Two payments for a refund."""
HOLD_MS = (50, 200, 600, 3000)
"""Shorter and longer than what is held lives."""


class Load:
    """A thread that writes `rate` records a second over all partitions, until the block ends.

    Attributes:
        sent: records given to the client so far; all of them are acknowledged once the block has ended.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        app_id: str,
        partitions: int,
        seed: int,
        rate: int = 300,
        keys: int = KEYS,
        holds: float = 0.0,
    ) -> None:
        """`holds`: share of the records whose amount is held."""
        self.sent = 0
        self._producer = _producer(bootstrap_servers)
        self._records = draw(app_id, partitions, seed, keys, holds)
        self._per_tick = max(1, round(rate * TICK_S))
        self._tick_s = self._per_tick / rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        flush(self._producer)

    def _run(self) -> None:
        while not self._ended.wait(self._tick_s):
            for _ in range(self._per_tick):
                self._producer.produce(**next(self._records))
            self.sent += self._per_tick
            self._producer.poll(0)


def send(
    bootstrap_servers: str, app_id: str, partitions: int, seed: int, count: int, keys: int = KEYS, holds: float = 0.0
) -> None:
    """`count` records at once; returns when all are acknowledged."""
    producer = _producer(bootstrap_servers)
    records = draw(app_id, partitions, seed, keys, holds)
    for record in islice(records, count):
        while len(producer) > 50_000:
            producer.poll(0.1)
        producer.produce(**record)
    flush(producer)


def draw(app_id: str, partitions: int, seed: int, keys: int = KEYS, holds: float = 0.0) -> Iterator[dict[str, Any]]:
    """Yield what to produce, for ever; the same for the same seed. A key stays in its partition."""
    dice = random.Random(seed)
    while True:
        number = dice.randrange(keys)
        topic, value = f"{dice.choice(TOPICS)}-{app_id}", {"amount": dice.randrange(1000)}
        if holds and dice.random() < holds:
            value["hold_ms"] = dice.choice(HOLD_MS)
        yield {
            "topic": topic,
            "key": f"k{number}".encode(),
            "value": json.dumps(value).encode(),
            "partition": number % partitions,
        }


def flush(producer: Any) -> None:
    """Wait until every record is acknowledged: one that is not would be missing for a good reason."""
    left = producer.flush(FLUSH_S)
    assert left == 0, f"{left} input records were not acknowledged in {FLUSH_S:.0f} s"


def _producer(bootstrap_servers: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",  # not idempotent: its client gives up for good when a broker has lost records
            "linger.ms": 5,
            "message.timeout.ms": 0,
            "log_level": 0,
        }
    )

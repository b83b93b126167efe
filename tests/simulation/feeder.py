"""Writes the inputs: plain records, transactions that commit or abort, gaps as compaction leaves them."""

from __future__ import annotations

import random

from snapreplay.service.ports import TopicPartition
from tests.simulation import program
from tests.simulation.broker import Broker
from tests.simulation.log import Transaction, TxnState
from tests.simulation.loop import VirtualLoop
from tests.simulation.scenario import Scenario


class Feeder:
    """All that is to be written is decided at the beginning; `finish` writes what is left."""

    def __init__(self, broker: Broker, scenario: Scenario, rng: random.Random) -> None:
        self._broker, self._scenario, self._rng = broker, scenario, rng
        self._now_ms = 1_000_000
        self.closed: set[str] = set()
        """Inputs that are being replaced: nobody writes to them."""
        self._left = {
            TopicPartition(topic, number): scenario.records
            for topic in program.INPUTS[: scenario.inputs]
            for number in range(scenario.partitions)
        }

    def schedule(self, loop: VirtualLoop, seconds: float) -> None:
        """Bursts at random times within `seconds`."""
        for partition, count in self._left.items():
            for _ in range(max(2, count // 4)):
                loop.call_later(seconds * self._rng.random(), self._burst, partition)

    def finish(self) -> None:
        for partition in self._left:
            while self._left[partition] > 0:
                self._burst(partition)

    def _burst(self, partition: TopicPartition) -> None:
        count = min(self._left[partition], self._rng.randint(1, 6))
        if count == 0 or partition.topic in self.closed:
            return
        way = self._rng.choice(("plain", "plain", "commit", "abort", "gap"))
        if way in ("commit", "abort"):
            self._transaction(partition, count, commit=way == "commit")
        else:
            for _ in range(count):
                self._append(partition, None)
        if way == "gap":
            log = self._broker.logs[partition]
            log.compact_away(self._append(partition, None))
        if way != "abort":
            self._left[partition] -= count

    def _transaction(self, partition: TopicPartition, count: int, *, commit: bool) -> None:
        transaction = Transaction("feeder", 0, 0.0)
        for _ in range(count):
            self._append(partition, transaction)
        transaction.state = TxnState.COMMITTED if commit else TxnState.ABORTED
        self._broker.logs[partition].mark(transaction)

    def _append(self, partition: TopicPartition, transaction: Transaction | None) -> int:
        rng = self._rng
        poison = rng.random() < self._scenario.poison
        bad = rng.choice((program.POISON, program.BULKY))
        text = bad if poison else str(rng.randrange(1000))
        self._now_ms += rng.randrange(3)
        key = rng.choice(program.KEYS).encode()
        log = self._broker.logs[partition]
        return log.append(key, text.encode(), (), self._now_ms, transaction)

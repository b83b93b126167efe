"""Writes the inputs: plain records, transactions that commit or abort, gaps as compaction leaves them."""

import random

from snapreplay.service.ports import TopicPartition
from tests.simulation import program
from tests.simulation.broker import Broker
from tests.simulation.log import Transaction, TxnState
from tests.simulation.loop import VirtualLoop
from tests.simulation.scenario import EPOCH_SECONDS, Scenario

YEAR_MS = 365 * 86_400_000


class Feeder:
    """All that is to be written is decided at the beginning; `finish` writes what is left."""

    def __init__(self, broker: Broker, scenario: Scenario, rng: random.Random) -> None:
        self._broker, self._scenario, self._rng = broker, scenario, rng
        self._now_ms = 1_000_000
        self._loop: VirtualLoop | None = None
        self.closed: set[str] = set()
        """Inputs that are being replaced: no producer writes to them."""
        self.is_held = False
        """Whether nothing is written for a while, at most until `finish`."""
        self.backlog: dict[TopicPartition, int] = {}
        """Where the backlog ends."""
        inputs, numbers = program.INPUTS[: scenario.inputs], range(scenario.partitions)
        places = (TopicPartition(topic, number) for topic in inputs for number in numbers)
        tables = (log for logs in scenario.table_logs.values() for log in logs)
        self._left = dict.fromkeys((*tables, *places), scenario.records)

    def schedule(self, loop: VirtualLoop, seconds: float) -> None:
        self._loop = loop
        for partition, count in self._left.items():
            for _ in range(max(2, count // 4)):
                loop.call_later(seconds * self._rng.random(), self._burst, partition)

    def begin_with_backlog(self, loop: VirtualLoop) -> None:
        """Write half of everything before any process is there: first the tables, then what is joined with them."""
        self._loop = loop
        for partition, count in self._left.items():
            self.write(partition, count // 2)
            self.backlog[partition] = log.end if (log := self._broker.logs.get(partition)) else 0

    def finish(self) -> None:
        self.is_held = False
        for partition in self._left:
            while self._left[partition] > 0:
                self._burst(partition)

    @property
    def now_ms(self) -> int:
        """Return the time of what was written last, or of the clock where stream time follows it."""
        if not self._scenario.idle_advance_ms or self._loop is None:
            return self._now_ms
        return max(self._now_ms, int((EPOCH_SECONDS + self._loop.time()) * 1000))

    def jump(self, milliseconds: int) -> None:
        self._now_ms += milliseconds

    def add(self, partition: TopicPartition, count: int) -> None:
        self._left[partition] += count

    def stop(self, topic: str) -> None:
        """Leave out what is left for a topic."""
        self._left |= {each: 0 for each in self._left if each.topic == topic}

    def end(self, topic: str) -> None:
        """Write nothing more to it."""
        self.closed.add(topic)
        self.stop(topic)

    def begin(self, topic: str, *, at_once: bool) -> None:
        """Write as much as at the beginning; `at_once`: `finish` is not called any more."""
        self.closed.discard(topic)
        for each in [each for each in self._left if each.topic == topic]:
            self.add(each, self._scenario.records)
            if at_once:
                self.write(each, self._left[each])

    def write(self, partition: TopicPartition, count: int) -> None:
        """Now, about as many."""
        while count > 0 and self._left[partition] > 0 and partition.topic not in self.closed:
            before = self._left[partition]
            self._burst(partition)
            count -= max(1, before - self._left[partition])

    def _burst(self, partition: TopicPartition) -> None:
        count = min(self._left[partition], self._rng.randint(1, 6))
        if count == 0 or self.is_held or partition.topic in self.closed:
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

    def _next_ms(self) -> int:
        """The timestamp of the next record; where something follows the time there are jumps."""
        rng, scenario = self._rng, self._scenario
        next_ms = self._now_ms + rng.randrange(3)
        if not scenario.timed:
            return next_ms
        if scenario.idle_advance_ms and self._loop is not None:  # seldom ahead of the clock
            return max(next_ms, self.now_ms) + rng.choice((0, 0, 5, 20, -200))
        return next_ms + rng.choices((0, 40, 400, -200, YEAR_MS), (60, 25, 10, 4, 1))[0]

    def _append(self, partition: TopicPartition, transaction: Transaction | None) -> int:
        rng = self._rng
        poison = rng.random() < self._scenario.poison
        bad = rng.choice((program.POISON, program.BULKY))
        text = bad if poison else str(rng.randrange(1000))
        self._now_ms = self._next_ms()
        key = rng.choice(program.KEYS).encode()
        log = self._broker.logs[partition]
        value: bytes | None = text.encode()
        if partition.topic == program.TABLE:
            value = None if rng.random() < 0.3 else str(rng.randrange(1000)).encode()
        return log.append(key, value, (), self._now_ms, transaction)

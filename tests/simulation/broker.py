"""Kafka in memory: partitions, and the coordinator of their transactions. No network here: see `network`.

Facts it keeps to (seen on 4.3.1): markers take offsets; a commit is decided before its markers are written, and
answered in between; a fence first ends the open transaction of its id; a transaction that outlives its timeout is
aborted and its producer's epoch is over, which looks exactly like a fence; a late EndTxn of the same epoch decides
whatever transaction is open when it arrives.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass

from snapreplay.app.record import Output
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.kafka_errors import Fenced
from snapreplay.service.core.lineage import LastFence, Lineage
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.simulation.log import Log, Transaction, TxnState, View

Writable = Output | LogRecord


class Concurrent(Exception):
    """CONCURRENT_TRANSACTIONS: the last transaction is not complete yet; ask again."""


class UnknownTopic(Exception):
    """UNKNOWN_TOPIC_OR_PARTITION: clients ask again until their deadline."""


class InvalidTxnState(Exception):
    """INVALID_TXN_STATE: there is no transaction that this could belong to."""


@dataclass
class _Id:
    """What the coordinator knows of a transactional id."""

    epoch: int = -1
    timeout: float = 60.0
    transaction: Transaction | None = None
    state: str = "Empty"  # in Kafka's words


class Broker:
    """`marker_lag` gives the seconds between a decision and each of its markers."""

    def __init__(self, rng: random.Random, *, slow_markers: bool) -> None:
        self.cluster_id = "simulated"
        self.partition_counts: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        self.by_id: dict[str, dict[int, Log]] = {}
        """Of every topic that ever was: partition → log."""
        self.ids_of: dict[str, list[str]] = {}
        """By name, in the order of creation."""
        self.logs: dict[TopicPartition, Log] = {}
        self.stale: dict[TopicPartition, View] = {}
        """Partitions with a second leader, cut off from its peers: what it still answers."""
        self.members: Collection[str] = ()
        """Of the only group."""
        self.slow_markers = slow_markers
        self._rng = rng
        self._created = 0
        self._ids: dict[str, _Id] = {}

    def create(self, topic: str, partition_count: int) -> None:
        self.partition_counts[topic] = partition_count
        self._created += 1
        self.ids_of.setdefault(topic, []).append(f"id-{self._created}")
        self.topic_ids[topic] = f"id-{self._created}"
        logs = self.by_id[self.topic_ids[topic]] = {}
        for number in range(partition_count):
            partition = TopicPartition(topic, number)
            logs[number] = self.logs[partition] = Log(partition)

    def copy(self) -> Broker:
        """The same logs, and no transaction: what is changed or appended there is not changed here."""
        other = Broker(self._rng, slow_markers=self.slow_markers)
        for topic, partition_count in self.partition_counts.items():
            other.create(topic, partition_count)
        for partition, log in self.logs.items():
            other.logs[partition].copy(log, log.end)
        return other

    def delete(self, topic: str) -> None:
        """Who waits for more of it is answered at once."""
        for number, log in self.by_id[self.topic_ids.pop(topic)].items():
            del self.logs[TopicPartition(topic, number)]
            self.stale.pop(TopicPartition(topic, number), None)
            log.wake()
        del self.partition_counts[topic]

    def heal(self, partition: TopicPartition, view: View) -> None:
        """The stale leader of a partition is gone, unless it is another one by now."""
        if self.stale.get(partition) is view:
            del self.stale[partition]

    # -------------------------------------------------------------- transactions

    def init_producer(self, transactional_id: str, timeout: float) -> int:
        """The new epoch; older ones are fenced.

        Raises:
            Concurrent: the open transaction is being ended first.
        """
        known = self._ids.setdefault(transactional_id, _Id())
        known.timeout = timeout
        if known.transaction is not None:
            if known.transaction.state is TxnState.ONGOING:
                known.epoch += 1
                self._decide(known, TxnState.ABORTED)
            if known.transaction is not None:
                raise Concurrent
        known.epoch += 1
        known.state = "Empty"
        return known.epoch

    def add_partition(
        self, transactional_id: str, epoch: int, partition: TopicPartition
    ) -> Transaction:
        """
        Raises:
            Fenced, Concurrent, UnknownTopic.
        """
        known = self._known(transactional_id, epoch)
        if partition not in self.logs:
            raise UnknownTopic
        if known.transaction is None:
            known.transaction = Transaction(transactional_id, epoch, _now())
            known.state = "Ongoing"
            self._expire_later(known, known.transaction)
        elif known.transaction.state is not TxnState.ONGOING:
            raise Concurrent
        known.transaction.partitions[partition] = None
        return known.transaction

    def produce(
        self, transactional_id: str, epoch: int, partition: TopicPartition, batch: list[Writable]
    ) -> int:
        """The offset of the batch's first record.

        Raises:
            Fenced, InvalidTxnState, UnknownTopic.
        """
        transaction = self._ids[transactional_id].transaction
        fits = transaction is not None and partition in transaction.partitions
        if transaction is None or not fits or transaction.epoch != epoch:
            self._known(transactional_id, epoch)
            raise InvalidTxnState
        if partition in transaction.marker or transaction.state is TxnState.COMMITTED:
            raise InvalidTxnState
        if partition not in self.logs:
            raise UnknownTopic
        log, first = self.logs[partition], self.logs[partition].end
        for record in batch:
            timestamp = record.timestamp_ms if isinstance(record, Output) else None
            written_at = int(_now() * 1000) if timestamp is None else timestamp
            log.append(record.key, record.value, tuple(record.headers), written_at, transaction)
        return first

    def end_transaction(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """
        Raises:
            Fenced, InvalidTxnState.
        """
        known = self._known(transactional_id, epoch)
        wanted = TxnState.COMMITTED if commit else TxnState.ABORTED
        transaction = known.transaction
        if transaction is None:
            raise InvalidTxnState
        if transaction.state is TxnState.ONGOING:
            self._decide(known, wanted)
        elif transaction.state is not wanted:
            raise InvalidTxnState

    def forget(self, transactional_id: str) -> None:
        """What the coordinator does after `transactional.id.expiration.ms`."""
        del self._ids[transactional_id]

    def last_fence(self, transactional_id: str) -> LastFence | None:
        """As DescribeTransactions tells it."""
        known = self._ids.get(transactional_id)
        if known is None:
            return None
        return LastFence(Lineage(1, known.epoch), known.state)

    def open_transactions(self) -> list[Transaction]:
        found = (known.transaction for known in self._ids.values())
        return [transaction for transaction in found if transaction is not None]

    def _known(self, transactional_id: str, epoch: int) -> _Id:
        known = self._ids[transactional_id]
        if known.epoch != epoch:
            raise fenced(transactional_id)
        return known

    def _decide(self, known: _Id, state: TxnState) -> None:
        transaction = known.transaction
        if transaction is None:
            raise AssertionError("only an open transaction is decided")
        transaction.state = state
        known.state = "CompleteCommit" if state is TxnState.COMMITTED else "CompleteAbort"
        for partition in transaction.partitions:
            lag = self._marker_lag()
            if lag == 0.0:
                self._write_marker(known, transaction, partition)
            else:
                loop = asyncio.get_running_loop()
                loop.call_later(lag, self._write_marker, known, transaction, partition)

    def _write_marker(self, known: _Id, transaction: Transaction, target: TopicPartition) -> None:
        log = self.logs.get(target)
        if log is not None:
            log.mark(transaction)
        transaction.marker.setdefault(target, -1)  # to a topic that is gone none is written
        if len(transaction.marker) == len(transaction.partitions):
            known.transaction = None

    def _marker_lag(self) -> float:
        if not self.slow_markers or self._rng.random() < 0.5:
            return 0.0
        return self._rng.choice((0.001, 0.01, 0.07, 0.3)) * self._rng.random()

    def _expire_later(self, known: _Id, transaction: Transaction) -> None:
        def expire() -> None:
            if known.transaction is transaction and transaction.state is TxnState.ONGOING:
                known.epoch += 1
                self._decide(known, TxnState.ABORTED)

        seconds = known.timeout * (1.0 + 0.2 * self._rng.random())
        asyncio.get_running_loop().call_later(seconds, expire)


def fenced(transactional_id: str) -> SnapreplayError:
    """As the adapter says it; a timed out transaction and a newer owner are not told apart."""
    return Fenced(
        f"the broker refuses the epoch of producer {transactional_id}: a newer owner, or our"
        " transaction timed out",
        transactional_id=transactional_id,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()

"""Kafka in memory: partitions, and the coordinator of their transactions. No network here: see `network`.

Facts it keeps to (seen on 4.3.1): markers take offsets; a commit is decided before its markers are written, and
answered in between; a fence first ends the open transaction of its id; a transaction that outlives its timeout is
aborted and its producer's epoch is over, which looks exactly like a fence; a late EndTxn of the same epoch decides
any transaction that is open when it arrives.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from snapreplay.app.record import Output
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.kafka_errors import Fenced
from snapreplay.service.core.lineage import LastFence, Lineage
from snapreplay.service.ports import CommittedOffset, LogRecord, TopicPartition
from tests.simulation.log import Log, Transaction, TxnState, View

Writable = Output | LogRecord


class Concurrent(Exception):
    """CONCURRENT_TRANSACTIONS: the last transaction is not complete yet; ask again."""


class UnknownTopic(Exception):
    """UNKNOWN_TOPIC_OR_PARTITION: clients ask again until their deadline."""


class InvalidTxnState(Exception):
    """INVALID_TXN_STATE: there is no transaction that this could belong to."""


@dataclass
class Coordinated:
    """A transactional id as its coordinator knows it."""

    epoch: int = -1
    fences: int = 0
    timeout: float = 60.0
    transaction: Transaction | None = None
    state: str = "Empty"  # in Kafka's words


class Fence(NamedTuple):
    """`number` counts those of an id: a coordinator that forgets gives the same epoch again."""

    epoch: int
    number: int


class Replica(NamedTuple):
    view: View
    log: Log


class Broker:
    """`marker_lag` gives the seconds between a decision and each of its markers."""

    def __init__(self, rng: random.Random, *, slow_markers: bool) -> None:
        self.cluster_id = "simulated"
        self.partition_counts: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        self.group_offsets: dict[tuple[str, TopicPartition], CommittedOffset] = {}
        self.group_history: defaultdict[TopicPartition, list[tuple[float, CommittedOffset | None]]] = defaultdict(list)
        """All that was ever in `group_offsets` of a partition, and since when; None: it was gone."""
        self.by_id: dict[str, dict[int, Log]] = {}
        """Of every topic that ever was: partition → log."""
        self.ids_of: dict[str, list[str]] = {}
        """By name, in the order of creation."""
        self.logs: dict[TopicPartition, Log] = {}
        self.stale: dict[TopicPartition, Replica] = {}
        """Partitions with a second leader, cut off from its peers: what it still answers."""
        self.members: Collection[str] = ()
        """Of the only group."""
        self.slow_markers = slow_markers
        self._rng = rng
        self._created = 0
        self._serials = itertools.count()
        self._ids: dict[str, Coordinated] = {}
        self._forgot_at: dict[str, float] = {}
        self._refused_markers: set[str] = set()
        self.torn: set[str] = set()
        """Ids with a transaction that their coordinator has forgotten half of: what is in it is in some logs. And those
        of producers that write although they were fenced: the coordinator has forgotten that, and gave out their epoch
        again."""

    def create(self, topic: str, partition_count: int) -> None:
        self._created += 1
        self.ids_of.setdefault(topic, []).append(f"id-{self._created}")
        self.topic_ids[topic] = f"id-{self._created}"
        self.by_id[self.topic_ids[topic]] = {}
        self.grow(topic, partition_count)

    def grow(self, topic: str, partition_count: int) -> None:
        logs = self.by_id[self.topic_ids[topic]]
        self.partition_counts[topic] = partition_count
        for number in range(len(logs), partition_count):
            partition = TopicPartition(topic, number)
            logs[number] = self.logs[partition] = Log(partition, self._serials)

    def copy(self) -> Broker:
        """The same logs, and no transaction: what is changed or appended there is not changed here."""
        other = Broker(self._rng, slow_markers=self.slow_markers)
        for topic, partition_count in self.partition_counts.items():
            other.create(topic, partition_count)
        for partition, log in self.logs.items():
            other.logs[partition].copy(log, log.end)
        return other

    def delete(self, topic: str) -> None:
        """Delete a topic; who waits for more of it is answered at once."""
        for number, log in self.by_id[self.topic_ids.pop(topic)].items():
            del self.logs[TopicPartition(topic, number)]
            self.stale.pop(TopicPartition(topic, number), None)
            log.wake()
        del self.partition_counts[topic]
        for group_id, partition in list(self.group_offsets):
            if partition.topic == topic:
                del self.group_offsets[group_id, partition]
                self.group_history[partition].append((now(), None))

    def lose(self, partition: TopicPartition, end_offset: int, start_offset: int, epoch: int | None) -> int:
        """The next leader of a partition has nothing from `end_offset` on: an unclean election, or an older directory.
        Returns how many offsets that were."""
        log = self.logs[partition]
        if partition in self.stale and self.stale[partition].log is log:
            # It still has what the others lose, also when they lose more later.
            self.stale[partition] = self.stale[partition]._replace(log=log.frozen())
        count = log.cut(end_offset, start_offset)
        log.elect(epoch)
        return count

    def log(self, topic: str, number: int) -> Log:
        return self.logs[TopicPartition(topic, number)]

    def leader(self, partition: TopicPartition) -> Replica:
        """The broker that its peers follow."""
        log = self.logs[partition]
        return Replica(log.view, log)

    def cut_off(self, partition: TopicPartition, seconds: float) -> None:
        """Its leader keeps answering what it knows, beside the next one."""
        stale = self.stale[partition] = self.leader(partition)

        def heal() -> None:
            if partition in self.stale and self.stale[partition].view is stale.view:
                del self.stale[partition]

        asyncio.get_running_loop().call_later(seconds, heal)

    # -------------------------------------------------------------- transactions

    def init_producer(self, transactional_id: str, timeout: float) -> Fence:
        """The new epoch; older ones are fenced. Raises Concurrent: the open transaction is being ended first."""
        known = self._ids.setdefault(transactional_id, Coordinated())
        known.timeout = timeout
        if known.transaction is not None:
            if known.transaction.state is TxnState.ONGOING:
                known.epoch += 1
                self._decide(known, TxnState.ABORTED)
            if known.transaction is not None:
                raise Concurrent
        known.epoch += 1
        known.fences += 1
        known.state = "Empty"
        return Fence(known.epoch, known.fences)

    def fences(self, transactional_id: str) -> int:
        return self._ids[transactional_id].fences

    def add_partition(self, transactional_id: str, epoch: int, partition: TopicPartition) -> Transaction:
        """Raises Fenced, Concurrent, UnknownTopic."""
        known = self._known(transactional_id, epoch)
        if partition not in self.logs:
            raise UnknownTopic
        if known.transaction is None:
            known.transaction = Transaction(transactional_id, epoch, now())
            known.state = "Ongoing"
            self._expire_later(known, known.transaction)
        elif known.transaction.state is not TxnState.ONGOING:
            raise Concurrent
        known.transaction.partitions[partition] = None
        return known.transaction

    def produce(self, transactional_id: str, epoch: int, partition: TopicPartition, batch: list[Writable]) -> int:
        """The offset of the batch's first record. Raises Fenced, InvalidTxnState, UnknownTopic."""
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
        if log.elections or self._forgot_at:
            self._check_producer(log, transaction)
        for record in batch:
            timestamp = record.timestamp_ms if isinstance(record, Output) else None
            written_at = int(now() * 1000) if timestamp is None else timestamp
            log.append(record.key, record.value, tuple(record.headers), written_at, transaction, first)
        return first

    def end_transaction(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """Raises Fenced, InvalidTxnState."""
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
        """Forget an id, as the coordinator does after `transactional.id.expiration.ms`."""
        del self._ids[transactional_id]

    def last_fence(self, transactional_id: str) -> LastFence | None:
        known = self._ids.get(transactional_id)
        if known is None:
            return None
        return LastFence(Lineage(1, known.epoch), known.state)

    def is_blocked(self, transactional_id: str) -> bool:
        """Say whether a decided transaction waits for markers that its partitions refuse."""
        known = self._ids.get(transactional_id)
        decided = known is not None and known.transaction is not None
        return decided and transactional_id in self._refused_markers

    def _check_producer(self, log: Log, transaction: Transaction) -> None:
        """Check a producer by what the leader knows from this log alone.

        Raises:
            Fenced: a younger epoch has written here: the coordinator has lost it.
            InvalidTxnState: OUT_OF_ORDER_SEQUENCE_NUMBER, a part of what the producer sent is lost, or its epoch was
                given out before.
        """
        if log.newest_epoch_of(transaction.transactional_id) > transaction.epoch:
            raise fenced(transaction.transactional_id)
        forgot_at = self._forgot_at.get(transaction.transactional_id, -1.0)
        again = transaction.began > forgot_at and log.has_older(transaction, forgot_at)
        if again or log.knows_a_gap(transaction):
            raise InvalidTxnState

    def commit_offsets(self, changed: dict[tuple[str, TopicPartition], CommittedOffset]) -> None:
        self.group_offsets = self.group_offsets | changed  # a loss may bring back what there was
        for (_, partition), offset in changed.items():
            self.group_history[partition].append((now(), offset))

    def restore_offsets(self, offsets: dict[tuple[str, TopicPartition], CommittedOffset]) -> bool:
        """`__consumer_offsets` is as it was then; whether that is another thing."""
        changed, before = offsets != self.group_offsets, self.group_offsets
        self.group_offsets = dict(offsets)
        for each in before.keys() | offsets.keys():
            self.group_history[each[1]].append((now(), offsets.get(each)))
        return changed

    def coordinated(self) -> dict[str, Coordinated]:
        return {each: replace(known) for each, known in self._ids.items()}

    def forget_since(self, remembered: dict[str, Coordinated]) -> int:
        """`__transaction_state` is as it was then; how many ids that changes. Epochs are given out again; a transaction
        that was under way then is so again, and one that is under way now has no owner."""
        changed = 0
        for transactional_id, then in remembered.items():
            known = self._ids[transactional_id]
            if (known.epoch, known.state) == (then.epoch, then.state):
                continue
            changed += 1
            self._forgot_at[transactional_id] = now()
            left, known.transaction = known.transaction, None
            if left is not None or then.transaction is not None:
                self.torn.add(transactional_id)
            again = _resumed(then.transaction) if then.transaction is not None else None
            if left is not None and left is not again:
                for partition in left.partitions:
                    self.logs[partition].forsake(left)
            known.epoch, known.state = then.epoch, then.state
            if again is not None:
                known.transaction = again
                self._expire_later(known, again)
                known.state = "Ongoing"
        return changed

    def _known(self, transactional_id: str, epoch: int) -> Coordinated:
        known = self._ids[transactional_id]
        if known.epoch != epoch:
            raise fenced(transactional_id)
        return known

    def _decide(self, known: Coordinated, state: TxnState) -> None:
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

    def _write_marker(self, known: Coordinated, transaction: Transaction, target: TopicPartition) -> None:
        log = self.logs.get(target)
        if log is not None and (log.elections or self._forgot_at):
            younger = log.newest_epoch_of(transaction.transactional_id) > transaction.epoch
            if younger:  # INVALID_PRODUCER_EPOCH: the coordinator gives up, and is never done
                self._refused_markers.add(transaction.transactional_id)
                return
        if log is not None:
            log.mark(transaction)
        transaction.marker.setdefault(target, -1)  # to a topic that is gone none is written
        if len(transaction.marker) == len(transaction.partitions):
            known.transaction = None

    def _marker_lag(self) -> float:
        if not self.slow_markers or self._rng.random() < 0.5:
            return 0.0
        return self._rng.choice((0.001, 0.01, 0.07, 0.3)) * self._rng.random()

    def _expire_later(self, known: Coordinated, transaction: Transaction) -> None:
        def expire() -> None:
            if known.transaction is transaction and transaction.state is TxnState.ONGOING:
                known.epoch += 1
                self._decide(known, TxnState.ABORTED)

        seconds = known.timeout * (1.0 + 0.2 * self._rng.random())
        asyncio.get_running_loop().call_later(seconds, expire)


def _resumed(then: Transaction) -> Transaction:
    """The transaction as its coordinator knew it; a decided one is under way again, and ends where it has ended."""
    if then.state is TxnState.ONGOING:
        return then
    return replace(then, state=TxnState.ONGOING, first={}, marker={}, began=now())


def fenced(transactional_id: str) -> SnapreplayError:
    """Make the error as the adapter says it; a timed out transaction and a newer owner are not told apart."""
    return Fenced(
        f"the broker refuses the epoch of producer {transactional_id}: a newer owner, or the transaction timed out",
        transactional_id=transactional_id,
    )


def now() -> float:
    return asyncio.get_running_loop().time()

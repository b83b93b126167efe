"""One partition's log: records, transactions, markers, and the ends that follow from them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from snapreplay.app.record import RawRecord
from snapreplay.service.ports import TopicPartition


class TxnState(Enum):
    """As the transaction coordinator knows it."""

    ONGOING = "ongoing"
    COMMITTED = "committed"  # decided; markers may still be under way
    ABORTED = "aborted"


@dataclass(eq=False)
class Transaction:
    """One transaction of one producer epoch. `first` and `marker` are offsets per partition."""

    transactional_id: str
    epoch: int
    began: float
    state: TxnState = TxnState.ONGOING
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    first: dict[TopicPartition, int] = field(default_factory=dict)
    marker: dict[TopicPartition, int] = field(default_factory=dict)


class View(NamedTuple):
    """What one replica answers: log start, last stable offset, high watermark."""

    start: int
    stable: int
    end: int


class Log:
    """Offsets are list indexes. Trimmed records stay in memory: the oracle and stale replicas still see them."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.start = 0
        self.records: list[RawRecord | None] = []
        self.transactions: list[Transaction | None] = []
        self.markers: dict[int, Transaction] = {}
        self._open: dict[Transaction, int] = {}  # by first offset
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def stable(self) -> int:
        return next(iter(self._open.values()), self.end)

    @property
    def open_transactions(self) -> list[Transaction]:
        return list(self._open)

    @property
    def view(self) -> View:
        return View(self.start, self.stable, self.end)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...],
        timestamp: int,
        transaction: Transaction | None,
    ) -> int:
        """The new record's offset."""
        offset = len(self.records)
        topic, number = self.partition
        self.records.append(RawRecord(topic, number, offset, timestamp, key, value, headers))
        self.transactions.append(transaction)
        if transaction is not None and self.partition not in transaction.first:
            transaction.first[self.partition] = offset
            self._open[transaction] = offset
        self.wake()
        return offset

    def mark(self, transaction: Transaction) -> None:
        """The marker that ends a transaction here; a bare one where it wrote nothing."""
        offset = len(self.records)
        self.records.append(None)
        self.transactions.append(None)
        self.markers[offset] = transaction
        transaction.marker[self.partition] = offset
        self._open.pop(transaction, None)
        self.wake()

    def copy(self, other: Log, end_offset: int) -> None:
        """What is visible of another log below `end_offset`, at the same offsets."""
        for offset in range(self.end, end_offset):
            self.records.append(other.visible(offset, committed_only=True))
            self.transactions.append(None)
        self.trim(min(other.start, end_offset))

    def compact_away(self, offset: int) -> None:
        """A gap, as compaction leaves it."""
        self.records[offset] = None
        self.transactions[offset] = None

    def visible(self, offset: int, *, committed_only: bool) -> RawRecord | None:
        """The record, None for a marker, a gap, or one of an aborted transaction."""
        transaction = self.transactions[offset]
        if committed_only and transaction is not None:
            return self.records[offset] if transaction.state is TxnState.COMMITTED else None
        return self.records[offset]

    def committed(self) -> list[RawRecord]:
        """Everything ever committed, trimmed or not, in order."""
        found = (self.visible(offset, committed_only=True) for offset in range(self.stable))
        return [record for record in found if record is not None]

    def tell(self, change: asyncio.Future[None]) -> None:
        """It is done at the next append, marker or trim."""
        self._waiting.append(change)

    def trim(self, before_offset: int) -> int:
        self.start = max(self.start, before_offset)
        self.wake()
        return self.start

    def wake(self) -> None:
        """Whoever waits for a change looks again."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for change in waiting:
                finish(change)


def finish(change: asyncio.Future[None]) -> None:
    """Somebody else may have been first."""
    if not change.done():
        change.set_result(None)

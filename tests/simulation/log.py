"""One partition's log: records, transactions, markers, leader epochs, and the ends that follow from them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count
from typing import NamedTuple

from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import RawRecord
from snapreplay.service.ports import EpochEnd, LogBatch, TopicPartition


class TxnState(Enum):
    ONGOING = "ongoing"
    COMMITTED = "committed"  # decided; markers may still be under way
    ABORTED = "aborted"


@dataclass(eq=False)
class Transaction:
    """One transaction of one producer epoch. `first` and `marker` are offsets per partition. `hung`: a log has lost its
    marker, this is what is left of it there, and so it had been decided."""

    transactional_id: str
    epoch: int
    began: float
    state: TxnState = TxnState.ONGOING
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    first: dict[TopicPartition, int] = field(default_factory=dict)
    marker: dict[TopicPartition, int] = field(default_factory=dict)
    hung: TxnState | None = None

    @property
    def identity(self) -> tuple[str, int, float]:
        return self.transactional_id, self.epoch, self.began


class View(NamedTuple):
    """The answer of one replica: log start, last stable offset, high watermark."""

    start: int
    stable: int
    end: int


class Place(NamedTuple):
    """The way an offset came into the log: `serial` counts all that was ever written to any log, `base` is the
    first offset of its record batch, `epoch` the leader's."""

    serial: int
    base: int
    epoch: int


class Written(NamedTuple):
    """A record that is in the log, or was: with the transaction that decided about it then."""

    serial: int
    record: RawRecord
    transaction: Transaction | None


class Log:
    """Offsets are list indexes. Trimmed records stay in memory: the oracle and stale replicas still see them. So do
    those that the brokers have lost, in `lost`."""

    def __init__(self, partition: TopicPartition, serials: Iterator[int] | None = None) -> None:
        """`serials`: of all logs of a broker."""
        self.partition = partition
        self.start = 0
        self.records: list[RawRecord | None] = []
        self.transactions: list[Transaction | None] = []
        self.places: list[Place] = []
        self.markers: dict[int, Transaction] = {}
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        """The leader epochs, each with its first offset: what Kafka keeps in `leader-epoch-checkpoint`."""
        self.elections = 0
        self.lost: list[Written] = []
        self.was_cut = False
        """Its end was lost once: also where nothing but markers was in it, and nothing is in `lost`."""
        self.cleaned: dict[int, int | None] = {}
        """First offset of a batch that the cleaner has written again → its new serial; None: it has removed it."""
        self.compacted: dict[int, RawRecord] = {}
        """What the cleaner has removed, by offset."""
        self._serials = count() if serials is None else serials
        self._open: dict[Transaction, int] = {}  # by first offset
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def stable(self) -> int:
        return min(self._open.values(), default=self.end)

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]

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
        headers: tuple[tuple[str, bytes | None], ...],
        timestamp: int,
        transaction: Transaction | None,
        base: int | None = None,
    ) -> int:
        """The new record's offset. `base`: the first offset of its batch; None: it is a batch of its own."""
        offset = len(self.records)
        topic, number = self.partition
        self._take(RawRecord(topic, number, offset, timestamp, key, value, headers), base)
        self.transactions.append(transaction)
        if transaction is not None and self.partition not in transaction.first:
            transaction.first[self.partition] = offset
            self._open[transaction] = offset
        self.wake()
        return offset

    def mark(self, transaction: Transaction) -> None:
        """The marker that ends a transaction here; a bare one where it wrote nothing."""
        offset = len(self.records)
        self._take(None, None)
        self.transactions.append(None)
        self.markers[offset] = transaction
        transaction.marker[self.partition] = offset
        self._open.pop(transaction, None)
        for hanging in self.hanging(transaction.transactional_id):
            hanging.state = transaction.state
            del self._open[hanging]
        self.wake()

    def hanging(self, transactional_id: str | None = None) -> list[Transaction]:
        """Transactions that only the next marker of their producer ends here: of this id, or all."""
        found = [each for each in self._open if each.hung]
        return [each for each in found if transactional_id in (None, each.transactional_id)]

    def abort_hanging(self) -> None:
        """Abort what hangs, as `kafka-transactions.sh --abort` does."""
        for each in self.hanging():
            self.mark(replace(each, state=TxnState.ABORTED, marker={}))

    def copy(self, other: Log, end_offset: int) -> None:
        """Copy what is visible of another log below `end_offset`, at the same offsets."""
        for offset in range(self.end, end_offset):
            self._take(other.visible(offset, committed_only=True), None)
            self.transactions.append(None)
        self.trim(min(other.start, end_offset))

    def frozen(self) -> Log:
        """Return it as it is now; what becomes of its transactions shows there, too."""
        other = copy(self)
        other.records, other.transactions = list(self.records), list(self.transactions)
        other.places, other.epochs, other.cleaned = list(self.places), list(self.epochs), dict(self.cleaned)
        return other

    def compact_away(self, offset: int) -> None:
        self.records[offset] = None
        self.transactions[offset] = None

    def visible(self, offset: int, *, committed_only: bool) -> RawRecord | None:
        """The record, None for a marker, a gap, or one of an aborted transaction."""
        transaction = self.transactions[offset]
        if committed_only and transaction is not None:
            return self.records[offset] if transaction.state is TxnState.COMMITTED else None
        return self.records[offset]

    def committed_at(self, offset: int) -> RawRecord | None:
        """The record, None if its producer has not committed it: also what was aborted and has come back."""
        return self.records[offset] if is_committed(self.transactions[offset]) else None

    def clean(self, end_offset: int, draw: Callable[[Sequence[str]], str]) -> Counter[str]:
        """Do what the log cleaner does below `end_offset`, by what `draw` chooses for each batch, to all that it may
        touch without a record that is read being gone. Returns how often it did what."""
        done: Counter[str] = Counter()
        end_offset = min(end_offset, self.stable)
        for base in sorted({self.places[offset].base for offset in range(self.start, end_offset)}):
            end = self._batch_end(base)
            if end > end_offset or self.cleaned.get(base, 0) is None:
                continue
            is_read = any(self.visible(offset, committed_only=True) for offset in range(base, end))
            what = draw(("kept", "rewritten") if is_read else ("kept", "emptied", "emptied", "removed"))
            if what == "removed":
                self.cleaned[base] = None
            elif what != "kept":
                self.cleaned[base] = next(self._serials)
            done[f"{what} marker" if base in self.markers else f"{what} batch"] += 1
        return done

    def compact(self, end_offset: int, draw: Callable[[Sequence[str]], str]) -> Counter[str]:
        """Do the same below `end_offset` where the topic is compacted: what a later record of its key supersedes is
        removed, and so are tombstones."""
        there = [each for offset in range(end_offset) if (each := self.visible(offset, committed_only=True))]
        newest = {each.key: each.offset for each in there}
        for each in there:
            if newest[each.key] > each.offset or each.value is None:
                self.compacted[each.offset] = each
                self.records[each.offset] = None
        done = self.clean(end_offset, draw)
        return done + Counter({"superseded record": sum(each.offset in self.compacted for each in there)})

    def _batch_end(self, base: int) -> int:
        end = base + 1
        while end < self.end and self.places[end].base == base:
            end += 1
        return end

    def batch_below(self, position: int) -> LogBatch | None:
        """Return what holds the offset directly below a position. The number of what was written stands for a batch's
        checksum."""
        offset = position - 1
        if not self.start <= offset < self.end:
            return None
        base, epoch = self.places[offset].base, self.places[offset].epoch
        serial = self.cleaned.get(base, self.places[base].serial)
        if serial is None:
            return None
        return LogBatch(base, self._batch_end(base), PositionAnchor(epoch, serial), is_cleaned=base in self.cleaned)

    def anchor_at(self, position: int) -> PositionAnchor | None:
        batch = self.batch_below(position)
        return batch.anchor if batch is not None else None

    def committed(self) -> list[RawRecord]:
        """Everything committed that is not lost, trimmed or not, in order."""
        found = (self.visible(offset, committed_only=True) for offset in range(self.stable))
        return [record for record in found if record is not None]

    def ever(self) -> Iterator[Written]:
        """Everything that was ever committed here, also what is lost, each once, in the order of writing."""
        there = (
            Written(place.serial, record, transaction)
            for record, transaction, place in zip(self.records, self.transactions, self.places, strict=True)
            if record is not None
        )
        seen: set[int] = set()
        # One whose marker was lost is in both: what became of it first counts.
        for each in sorted([*self.lost, *there], key=lambda written: written.serial):
            if is_committed(each.transaction) and each.serial not in seen:
                seen.add(each.serial)
                yield each

    def is_where_it_was(self, offset: int, record: RawRecord | None) -> bool:
        """Say whether this record, or one that was aborted since, is at this offset: not whether it can be read."""
        return offset < self.end and self.records[offset] == record

    def has_come_back(self) -> bool:
        """Say whether something is visible that was aborted."""
        return any(
            each.hung is TxnState.ABORTED and each.state is TxnState.COMMITTED
            for each in self.transactions
            if each is not None
        )

    def tell(self, change: asyncio.Future[None]) -> None:
        """It is done at the next append, marker, trim or election."""
        self._waiting.append(change)

    def trim(self, before_offset: int) -> int:
        self.start = max(self.start, before_offset)
        self.wake()
        return self.start

    def wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for change in waiting:
                finish(change)

    # ---------------------------------------------------------------- leaders

    def elect(self, epoch: int | None = None) -> None:
        """The next leader; `epoch` where the brokers' metadata is older, too, and counts again."""
        epoch = self.epoch + 1 if epoch is None else epoch
        self.epochs = [each for each in self.epochs if each[0] < epoch and each[1] < self.end]
        self.epochs.append((epoch, self.end))
        self.elections += 1
        self.wake()

    def epoch_end(self, epoch: int) -> EpochEnd | None:
        """Answer as OffsetForLeaderEpoch does: the newest epoch up to this one, and the offset where it ends; None: the
        log knows nothing of the epoch."""
        if epoch == self.epoch:
            return EpochEnd(epoch, self.end)
        later = next((start for known, start in self.epochs if known > epoch), None)
        if later is None:
            return None
        return EpochEnd(max((known for known, _ in self.epochs if known <= epoch), default=epoch), later)

    def diverges(self, offset: int, last_epoch: int) -> bool:
        """Say whether a fetch from this offset is refused that names the epoch of the batch before: as a diverging
        epoch, or OFFSET_OUT_OF_RANGE where that is not known."""
        found = self.epoch_end(last_epoch)
        return found is None or found.leader_epoch < last_epoch or found.end_offset < offset

    # ---------------------------------------------------------------- losing records

    def batch_ends(self) -> list[int]:
        """Every offset at which a batch ends, and 0: where a replica may have stopped to follow."""
        found = [at for at in range(1, self.end) if self.places[at].base == at]
        return sorted({0, *found, self.end})

    def cut(self, end_offset: int, start_offset: int | None = None) -> int:
        """Everything from here on was never there, for every reader from now on. Returns how many offsets that are.

        Args:
            start_offset: of the replica, or the directory, that is left.
        """
        count = self.end - end_offset
        self.was_cut = self.was_cut or count > 0
        for transaction in {each for each in self.transactions if each is not None}:
            if self._loses_its_end(transaction, end_offset):
                self._leave_hanging(transaction, end_offset)
        for offset in range(end_offset, self.end):
            self._archive(offset)
        del self.records[end_offset:], self.transactions[end_offset:], self.places[end_offset:]
        self.markers = {at: each for at, each in self.markers.items() if at < end_offset}
        self.cleaned = {base: serial for base, serial in self.cleaned.items() if base < end_offset}
        for transaction, first in list(self._open.items()):
            if first >= end_offset:
                del self._open[transaction]
                transaction.first.pop(self.partition, None)
        self.epochs = [each for each in self.epochs if each[1] < end_offset] or self.epochs[:1]
        self.start = min(self.start if start_offset is None else start_offset, end_offset)
        return count

    def newest_epoch_of(self, transactional_id: str) -> int:
        """The epoch of the producer that wrote last; -1: none is known."""
        of_records = (each.epoch for each in self.transactions if each and each.transactional_id == transactional_id)
        of_markers = (each.epoch for each in self.markers.values() if each.transactional_id == transactional_id)
        return max((*of_records, *of_markers), default=-1)

    def has_older(self, transaction: Transaction, before: float) -> bool:
        """Say whether another producer of the same epoch has written here, in a transaction that began before a
        time."""
        ours = (transaction.transactional_id, transaction.epoch)
        return any(
            (each.transactional_id, each.epoch) == ours and each.began < before
            for each in self.transactions
            if each is not None
        )

    def knows_a_gap(self, transaction: Transaction) -> bool:
        """Say whether the last batches of its producer are lost and others are not: sequence numbers do not fit
        then."""

        def is_of(other: Transaction | None) -> bool:
            return (
                other is not None
                and other.transactional_id == transaction.transactional_id
                and other.epoch == transaction.epoch
            )

        kept = [place.serial for each, place in zip(self.transactions, self.places, strict=True) if is_of(each)]
        lost = [each.serial for each in self.lost if is_of(each.transaction)]
        return bool(kept and lost and max(lost) > max(kept))

    def _loses_its_end(self, transaction: Transaction, end_offset: int) -> bool:
        first = transaction.first.get(self.partition)
        marker = transaction.marker.get(self.partition, -1)
        return first is not None and first < end_offset <= marker

    def forsake(self, transaction: Transaction) -> None:
        """Its coordinator has forgotten it. Where it is open, it ends as each log's next marker says."""
        if self._open.pop(transaction, None) is not None:
            self._leave_hanging(transaction, self.end)

    def _leave_hanging(self, transaction: Transaction, end_offset: int) -> None:
        """Its records are there and their marker is not: it is open here until this producer's next
        transaction ends."""
        hanging = replace(transaction, state=TxnState.ONGOING, marker={}, hung=transaction.state)
        for offset in range(transaction.first[self.partition], end_offset):
            if self.transactions[offset] is transaction:
                if self.partition in transaction.marker:
                    self._archive(offset)
                self.transactions[offset] = hanging
        self._open[hanging] = transaction.first[self.partition]

    def _archive(self, offset: int) -> None:
        record = self.records[offset]
        if record is not None:
            self.lost.append(Written(self.places[offset].serial, record, self.transactions[offset]))

    def _take(self, record: RawRecord | None, base: int | None) -> None:
        base = self.end if base is None else base
        self.places.append(Place(next(self._serials), base, self.epoch))
        self.records.append(record)


def is_committed(transaction: Transaction | None) -> bool:
    """Say whether its producer has committed it. One that was aborted, and lost its marker, becomes visible when
    the next transaction of its producer is committed: that is the brokers' doing, and not a commit."""
    if transaction is None:
        return True
    return transaction.state is TxnState.COMMITTED and transaction.hung is not TxnState.ABORTED


def finish(change: asyncio.Future[None]) -> None:
    """Somebody else may have been first."""
    if not change.done():
        change.set_result(None)

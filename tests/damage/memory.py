"""A partition's topics as lists, behind the reader's and producer's ports: no broker, nothing under way, so that
thousands of damaged logs can be recovered from. Logs are written by the code that writes them for Kafka.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.fold import Fold
from snapreplay.app.record import RawRecord
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.status import RestoreStatus, StatusBoard
from snapreplay.service.core.chain import Chain, genesis_increment
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.live.committer import Committer
from snapreplay.service.ports import Bounds, LogRecord, TopicFacts, TopicPartition
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.publish.claim import claim_record
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.envelope import encode, headers_of
from snapreplay.snapshots.format.records import Genesis, Increment
from snapreplay.state.contract import Store
from snapreplay.state.store import store_of
from tests.damage.edits import Slot
from tests.support import apps

CLUSTER_ID = "memory"
KEYS = 40  # a batch of 10 records changes other keys than the one before: whatever is left out is missed
PAD_BYTES = 700  # of every value: a snapshot has several chunks, and large records are compressed


@dataclass
class MemoryLog:
    """One partition. None in the place of a record: a transaction marker."""

    records: list[RawRecord | None] = field(default_factory=list)
    start_offset: int = 0

    def append(self, topic: str, key: bytes | None, value: bytes | None, headers: Any = ()) -> int:
        offset = len(self.records)
        self.records.append(RawRecord(topic, 0, offset, 1000 + offset, key, value, headers))
        return offset


class MemoryCluster:
    """`ports.Cluster` as far as a recovery uses it; also its own reader, producer and appender."""

    def __init__(self, logs: dict[str, MemoryLog]) -> None:
        self.logs = logs

    def slots(self, topic: str) -> list[Slot]:
        """To be edited, then given to `rewrite`."""
        return [
            Slot(record.offset, record.key, record.value, record.headers)
            for record in self.logs[topic].records
            if record is not None
        ]

    def rewrite(self, topic: str, slots: list[Slot]) -> None:
        """The log as long as it was, with these records in it."""
        log = self.logs[topic]
        log.records = [None] * len(log.records)
        for slot in slots:
            log.records[slot.offset] = RawRecord(
                topic, 0, slot.offset, 1000 + slot.offset, slot.key, slot.value, slot.headers
            )

    def copy(self) -> MemoryCluster:
        """Independent: what is changed or appended there is not changed here."""
        return MemoryCluster({n: replace(g, records=g.records[:]) for n, g in self.logs.items()})

    async def reader(self, **_: bool) -> MemoryCluster:
        return self

    async def fence(self, transactional_id: str) -> MemoryCluster:
        return self

    async def appender(self) -> MemoryCluster:
        return self

    async def topics(self, names: Any) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, 1, 1, {}) for name in names}

    async def topic_ids(self, names: Any) -> dict[str, str]:
        """A cluster that has none."""
        return dict.fromkeys(names, "")

    async def last_fence(self, transactional_id: str) -> None:
        """Nobody knows."""

    async def agreed_end_offset(self, partition: TopicPartition) -> int:
        return len(self.logs[partition.topic].records)

    async def bounds(self, partition: TopicPartition) -> Bounds:
        log = self.logs[partition.topic]
        return Bounds(log.start_offset, len(log.records))

    async def read(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[RawRecord]]:
        log = self.logs[partition.topic]
        if start_offset >= end_offset:
            return
        if start_offset < log.start_offset:
            raise OffsetTrimmed(f"{partition} begins at {log.start_offset}", offset=start_offset)
        if end_offset > len(log.records):
            raise OffsetBeyondEnd(f"{partition} ends at {len(log.records)}", offset=end_offset)
        for record in log.records[start_offset:end_offset]:
            if record is not None:
                yield [record]

    async def read_at(self, partition: TopicPartition, offset: int) -> RawRecord | None:
        log = self.logs[partition.topic]
        if offset < log.start_offset:
            raise OffsetTrimmed(f"{partition} begins at {log.start_offset}", offset=offset)
        return log.records[offset] if offset < len(log.records) else None

    async def commit(
        self, partition: int, outputs: Any, records: Sequence[LogRecord]
    ) -> tuple[int, ...]:
        offsets = tuple([await self.append(record, partition) for record in records])
        self.logs[records[-1].topic].records.append(None)
        return offsets

    async def append(self, record: LogRecord, partition: int) -> int:
        return self.logs[record.topic].append(record.topic, None, record.value, record.headers)

    needs_renewal = False
    lineage = None

    async def close(self) -> None:
        """Nothing is open."""

    discard = close


@dataclass(repr=False)  # all records in it are more than anybody reads, and hypothesis complains
class World:
    """An app that ran, and what it left: `entries` of its state after the `last` batch."""

    app: App[Any]
    cluster: MemoryCluster
    settings: Settings
    last: Any = None
    entries: dict[str, Any] = field(default_factory=dict)

    @property
    def producer(self) -> Any:
        """Any: one object is reader, producer and appender."""
        return self.cluster

    def copy(self) -> World:
        return replace(self, cluster=self.cluster.copy())

    def context(self) -> Context:
        view = ClusterView(CLUSTER_ID, 1, {}, 1000)
        identity = Identity("process", "one", "host", 1, 1)
        cluster: Any = self.cluster
        return Context(self.app, self.settings, cluster, view, identity, 0, asyncio.Semaphore(1))


@dataclass
class Outcome:
    """How a recovery ended: the error, or the state as plain values and the increment it stands at."""

    error: SnapreplayError | None
    restore: RestoreStatus
    last: Increment | None = None
    entries: dict[str, Any] = field(default_factory=dict)


def padded(name: str) -> App[Any]:
    """A ledger whose values are large."""
    return apps.ledger(name, book)


def book(value: Any, account: dict[str, Any]) -> None:
    """Books the amount, and makes the account large."""
    account["sum"] += value["amount"]
    account["pad"] = random.Random(value["amount"]).randbytes(PAD_BYTES // 2).hex()


async def world(
    *, app: App[Any] | None = None, changes: bool = True, mode: str = "changes"
) -> World:
    """Batches 1 and 2, a snapshot, 4 and 5, a snapshot, 7 and 8 (3 and 6 point). Without `app` it is `padded`; every
    app is called "memory"."""
    app = app or padded("memory")
    names = (
        *(t.name for t in (*app.inputs, *app.outputs)),
        "memory-increments",
        "memory-snapshots",
    )
    restore = {"retry_backoff_ms": 10} | ({"mode": mode} if changes else {})
    settings = Settings(
        restore=restore, snapshot={"chunk_bytes_max": 10_000}, changelog={"enabled": changes}
    )
    made = World(app, MemoryCluster({name: MemoryLog() for name in names}), settings)
    context, store = made.context(), store_of(app.state())
    committer = Committer(context, store, made.producer, await _genesis(context, store))
    fold = Fold(app, store, 0)
    for part in range(3):
        for _ in range(2):
            await _batch(made, fold, committer)
        if part < 2:
            await _snapshot(context, store, committer)
    made.last = committer.chain.last
    made.entries = plain(store)
    return made


async def _genesis(context: Context, store: Store) -> Chain:
    cluster: Any = context.cluster
    (epoch,) = await cluster.commit(0, (), (claim_record(context, "first"),))
    genesis = Genesis(CLUSTER_ID, 1, dict.fromkeys(context.input_names, 0))
    increment = genesis_increment(context.origin, epoch, genesis, store.digest, 1, {})
    record = LogRecord(context.increments.topic, encode(increment), headers=headers_of(increment))
    (offset,) = await cluster.commit(0, (), (record,))
    return Chain(context.origin, epoch, increment, offset, pointers_max=3)


async def _batch(made: World, fold: Fold, committer: Committer) -> None:
    topic = made.app.inputs[0].name
    log = made.cluster.logs[topic]
    first = len(log.records)
    for number in range(first, first + 10):
        value = json.dumps({"amount": number}).encode()
        log.append(topic, f'"k{number % KEYS}"'.encode(), value)
    fold.begin(committer.chain.last.positions)
    fold.feed([record for record in log.records[first:] if record is not None])
    committer.start(fold.finish())
    await committer.settle()


async def _snapshot(context: Context, store: Store, committer: Committer) -> None:
    marked = snapshot_writer.mark(store, committer.chain, "test")
    pointer = await snapshot_writer.write(context, marked, Reporter(StatusBoard(), 0))
    committer.chain = committer.chain.pointing_to(pointer)
    committer.start(None)
    await committer.settle()


def plain(store: Store) -> dict[str, Any]:
    """The state, to be compared."""
    view: Any = store.view
    if isinstance(view, apps.Tape):
        return {"ids": view.ids[:]}
    return {key: dict(value) for key, value in view.items()}


async def recovered(of: World) -> Outcome:
    """One whole recovery over its logs, which grow by a claim.

    Raises:
        Exception: anything that is no error of ours, as is.
    """
    store, board = store_of(of.app.state()), StatusBoard()
    reporter = Reporter(board, 0)
    context = of.context()
    try:
        result = await RecoveryDriver(context, store, reporter).recover()
    except SnapreplayError as error:
        return Outcome(error, _restore(board))
    await result.producer.discard()
    return Outcome(None, _restore(board), result.chain.last, plain(store))


def _restore(board: StatusBoard) -> RestoreStatus:
    (status,) = board.all()
    assert status.restore is not None
    return status.restore

"""A partition's past on the simulator's Kafka, where nothing goes wrong but the logs, so that thousands of damaged logs
can be recovered from. They are written by the code that writes them for Kafka.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from snapreplay.app.app import App
from snapreplay.app.fold import Fold
from snapreplay.app.record import RawRecord
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.groups import ChangelogSettings, SnapshotSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.status import RecoveryStatus, StatusBoard
from snapreplay.service.core.chain import Chain, genesis_increment
from snapreplay.service.live.committer import Committer
from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.publish.owned import claim_record
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.envelope import encode, headers_of
from snapreplay.snapshots.format.records import Genesis, Increment
from snapreplay.state.composite import Store
from snapreplay.state.map import MapState
from snapreplay.state.stores import Stores, store_of
from tests.damage.edits import Slot
from tests.simulation.broker import Broker
from tests.simulation.cluster import undisturbed
from tests.simulation.log import Log
from tests.simulation.loop import VirtualLoop
from tests.support import apps

OWN = ("memory-increments", "memory-snapshots")
KEYS = 40  # a batch of 10 records changes other keys than the one before: what is left out is missed
PAD_BYTES = 700  # of every value: a snapshot has several chunks, and large records are compressed
HANG_SECONDS = 600.0  # virtual: a recovery asks a leader that may be stale again and again
T = TypeVar("T")


@dataclass(repr=False)  # all records in it are more than anybody reads, and hypothesis complains
class World:
    """An app that ran, and what it left: `entries` of its state after the `last` batch."""

    app: App[Any]
    settings: Settings
    broker: Broker
    last: Any = None
    entries: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> World:
        return replace(self, broker=self.broker.copy())

    def log(self, topic: str) -> Log:
        return self.broker.logs[TopicPartition(topic, 0)]

    def slots(self, topic: str) -> list[Slot]:
        """Return slots to be edited, then given to `rewrite`."""
        records = filter(None, self.log(topic).records)
        return [Slot(each.offset, each.key, each.value, each.headers) for each in records]

    def rewrite(self, topic: str, slots: list[Slot]) -> None:
        """The log as long as it was, with these records in it."""
        records = self.log(topic).records
        records[:] = [None] * len(records)
        for slot in slots:
            at = slot.offset
            records[at] = RawRecord(topic, 0, at, 1000 + at, slot.key, slot.value, slot.headers)

    def run(self, work: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
        """Run the work in virtual time. What hangs is an error."""
        loop, broker = VirtualLoop(), self.broker
        view = ClusterView(broker.cluster_id, 1, {}, 1000, topic_ids=broker.topic_ids)
        identity = Identity("process", "one", "host", 1, 1)
        cluster = undisturbed(loop, broker, self.settings)
        limit = asyncio.Semaphore(1)
        context = Context(self.app, self.settings, cluster, view, identity, 0, limit)

        async def bounded() -> T:
            async with asyncio.timeout(HANG_SECONDS):
                return await work(context)

        try:
            return loop.run_until_complete(bounded())
        finally:
            loop.close()


@dataclass
class Outcome:
    """The outcome of a recovery: the error, or the state as plain values and the increment it stands at."""

    error: SnapreplayError | None
    restore: RecoveryStatus
    last: Increment | None = None
    entries: dict[str, Any] = field(default_factory=dict)


def padded(name: str) -> App[Any]:
    """A ledger whose values are large."""
    return apps.ledger(name, book)


def book(value: Any, account: dict[str, Any]) -> None:
    """Books the amount, and makes the account large."""
    account["sum"] += value["amount"]
    account["pad"] = random.Random(value["amount"]).randbytes(PAD_BYTES // 2).hex()


def world(*, app: App[Any] | None = None, changes: bool = True, mode: str = "changes") -> World:
    """Batches 1 and 2, a snapshot, 4 and 5, a snapshot, 7 and 8 (3 and 6 point). Without `app` it is `padded`; every
    app is called "memory"."""
    app = app or padded("memory")
    restore: Any = {"retry_backoff_ms": 10} | ({"mode": mode} if changes else {})
    settings = Settings(
        restore=restore, snapshot=SnapshotSettings(chunk_bytes_max=10_000), changelog=ChangelogSettings(enabled=changes)
    )
    made = World(app, settings, Broker(random.Random(1), slow_markers=False))
    for topic in (*(t.name for t in (*app.inputs, *app.outputs)), *OWN):
        made.broker.create(topic, 1)
    made.last, made.entries = made.run(lambda context: _past(context, made))
    return made


async def _past(context: Context, made: World) -> tuple[Increment, dict[str, Any]]:
    store = store_of(context.app.state())
    producer: Any = await context.cluster.fence("memory")
    chain = await _genesis(context, store, producer)
    committer, fold = Committer(context, store, producer, chain), Fold(context.app, store, 0)
    for part in range(3):
        for _ in range(2):
            await _batch(made, fold, committer)
        if part < 2:
            await _snapshot(context, store, committer)
    return committer.chain.last, plain(store)


async def _genesis(context: Context, store: Store, producer: Any) -> Chain:
    (epoch,) = await producer.commit(0, (), (claim_record(context, "first"),))
    view = context.view
    genesis = Genesis(view.cluster_id, 1, dict.fromkeys(context.input_names, 0))
    increment = genesis_increment(context.origin, epoch, genesis, store.digest, 1, view.topic_ids)
    record = LogRecord(context.increments.topic, encode(increment), headers=headers_of(increment))
    (offset,) = await producer.commit(0, (), (record,))
    return Chain(context.origin, epoch, increment, offset, pointers_max=3)


async def _batch(made: World, fold: Fold, committer: Committer) -> None:
    log = made.log(made.app.inputs[0].name)
    first = log.end
    for number in range(first, first + 10):
        value = json.dumps({"amount": number}).encode()
        log.append(f'"k{number % KEYS}"'.encode(), value, (), 1000 + number, None)
    fold.begin(committer.chain.last.positions)
    fold.feed(log.committed()[first:])
    committer.start(fold.finish())
    await committer.settle()


async def _snapshot(context: Context, store: Store, committer: Committer) -> None:
    marked = snapshot_writer.mark(store, committer.chain, "test")
    pointer, _ = await snapshot_writer.write(context, marked, Reporter(StatusBoard(), 0))
    committer.chain = committer.chain.pointing_to(pointer)
    committer.start(None)
    await committer.settle()


def plain(store: Store) -> dict[str, Any]:
    """The state, to be compared."""
    view: Any = store.view
    if isinstance(view, Stores):
        maps = {name: each for name, each in vars(view).items() if isinstance(each, MapState)}
        return {name: dict(each.items()) for name, each in maps.items()}
    return {key: dict(value) for key, value in view.items()}


def recovered(of: World) -> Outcome:
    """One whole recovery over its logs, which grow by a claim.

    Raises:
        Exception: anything that is none of our errors, as is.
    """
    return of.run(_recover)


async def _recover(context: Context) -> Outcome:
    board = StatusBoard()
    error = last = None
    entries: dict[str, Any] = {}
    try:
        result = await RecoveryDriver(context, Memory(context), Reporter(board, 0)).recover()
        await result.producer.discard()
        last, entries = result.chain.last, plain(result.store)
    except SnapreplayError as failure:
        error = failure
    (status,) = board.all()
    assert status.restore is not None
    return Outcome(error, status.restore, last, entries)

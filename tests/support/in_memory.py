"""An app on the simulator's Kafka, to which nothing happens, in virtual time: for what needs no broker to be shown.

Statuses come as Any, as in `stage`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from snapreplay.app.app import App
from snapreplay.app.record import RawRecord
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.init import init_app
from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.runtime.context import Context, Identity
from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from tests.simulation.broker import Broker
from tests.simulation.cluster import SimCluster, undisturbed
from tests.simulation.log import Log
from tests.simulation.loop import VirtualLoop
from tests.support import apps, reference
from tests.support.owner import Owner
from tests.support.stage import AppTopics, Past, lived, settings_for, until
from tests.support.tampering import Change

OPEN_SECONDS = 3600.0
FAILED_SECONDS = 300.0  # virtual: a leader that may be stale is asked again and again

Rule = Callable[[Any, dict[str, int]], None]


class InMemory(AppTopics):
    """One app with one partition, its topics and its input. `await prepare()` first; `end` ends all owners."""

    def __init__(self) -> None:
        self.app: App[Any] = apps.ledger("app")
        self.tables: dict[str, Any] = {}
        self.sent = 0
        self.owners: list[Owner] = []
        self.broker = Broker(random.Random(1), slow_markers=False)

    async def prepare(self, app: App[Any] | None = None, **tables: Any) -> InMemory:
        """Create all topics and write the genesis."""
        self.app, self.tables = app or self.app, tables
        self.create_topics()
        await init_app(self.app, self.settings(), self.cluster)
        return self

    def create_topics(self, partitions: int = 1) -> None:
        own = (self.increments, self.snapshots, self.dead_letters)
        for topic in (*(each.name for each in (*self.app.inputs, *self.app.outputs)), *own):
            if topic not in self.broker.topic_ids:
                self.broker.create(topic, partitions)

    def beside(self, app: App[Any], partitions: int = 1) -> InMemory:
        """Another app on the same Kafka, its topics made, not initialised."""
        made = InMemory()
        made.app, made.broker = app, self.broker
        made.create_topics(partitions)
        return made

    def settings(self, **tables: Any) -> Settings:
        return settings_for("nowhere:1", **{**self.tables, **tables})

    @property
    def cluster(self) -> SimCluster:
        return self._cluster(self.settings())

    def _cluster(self, settings: Settings) -> SimCluster:
        loop: Any = asyncio.get_running_loop()
        return undisturbed(loop, self.broker, settings)

    async def context(self, instance_id: str = "one", app: App[Any] | None = None, **tables: Any) -> Context:
        """Return what the parts of one partition are made with; a new process id each time."""
        settings = self.settings(instance_id=instance_id, **tables)
        cluster, identity = self._cluster(settings), Identity.of_this_process(instance_id)
        view = await inspect(app or self.app, settings, cluster)
        limit = asyncio.Semaphore(2)
        return Context(app or self.app, settings, cluster, view, identity, 0, limit)

    async def owner(self, instance_id: str = "one", app: App[Any] | None = None, **tables: Any) -> Owner:
        """Make an owner of the partition, not LIVE yet."""
        if not self.broker.topic_ids:
            await self.prepare()
        self.owners.append(Owner(self, await self.context(instance_id, app, **tables)))
        return self.owners[-1]

    async def live_owner(
        self, instance_id: str = "one", app: App[Any] | None = None, *, records: int = 0, **tables: Any
    ) -> Owner:
        """Make an owner that is LIVE, and has processed so many payments more."""
        one = await self.owner(instance_id, app, **tables)
        await one.phase("live")
        if records:
            await one.feed(records)
        return one

    @asynccontextmanager
    async def live(self, app: App[Any] | None = None, *, records: int = 0, **tables: Any) -> AsyncIterator[Owner]:
        """Such an owner, for the length of the block."""
        one = await self.live_owner(app=app, records=records, **tables)
        yield one
        await one.end()

    async def restored(self, app: App[Any] | None = None, **tables: Any) -> Any:
        """The RestoreStatus of an owner that goes LIVE and ends again; all was exactly once."""
        async with self.live(app, **tables) as one:
            await self.assert_exactly_once(one)
            return one.status.restore

    async def failure(self, app: App[Any] | None = None, **tables: Any) -> Any:
        """The status of an owner that is started, FAILED."""
        one = await self.owner(app=app, **tables)
        await until(lambda: one.status.phase == "failed", "failed", FAILED_SECONDS)
        status = one.status
        await one.end()
        return status

    async def assert_exactly_once(
        self, one: Owner, rule: Rule = apps.add, skipped: Callable[[Any], bool] = lambda _: False
    ) -> None:
        """Outputs one per input record, in order, and the state: as folded by hand."""
        await one.position(self.log(self.input).end)
        inputs: Any = await self.read(self.input)
        outputs, states = reference.balances(self.input, inputs, rule, skipped)
        found: Any = await self.read(self.output)
        assert reference.decoded(found[0]) == outputs[0]
        assert one.view() == states[0]

    async def past(self, app: App[Any] | None = None, **tables: Any) -> Past:
        await self.prepare(app, **tables)
        async with self.live() as one:
            return await lived(self, lambda: one.position(self.sent), one.snapshot)

    async def end(self) -> None:
        for each in self.owners:
            await each.end()

    # ---------------------------------------------------------------------------------- the logs

    def log(self, topic: str) -> Log:
        return self.broker.logs[TopicPartition(topic, 0)]

    async def send(self, records: Iterable[tuple[Any, Any]], topic: str = "") -> None:
        log = self.log(topic or self.input)
        for key, value in records:
            raw_key = key if isinstance(key, bytes) else key.encode()
            raw_value = value if isinstance(value, bytes | None) else json.dumps(value).encode()
            log.append(raw_key, raw_value, (), 1000 + log.end, None)

    async def read(self, topic: str) -> list[list[RawRecord]]:
        return [self.log(topic).committed()]

    def batches(self) -> list[Any]:
        records = self.log(self.increments).committed()
        values = [each.value or b"" for each in records]
        return [decode(value) for value in values if kind_of(value) is RecordKind.INCREMENT]

    def last_batch(self) -> tuple[int, int]:
        """Return the offsets of its first record in the increments topic, and of its increment."""
        log = self.log(self.increments)
        last = next(each for each in reversed(log.committed()) if kind_of(each.value or b"") is RecordKind.INCREMENT)
        transaction = log.transactions[last.offset]
        return (transaction.first[log.partition] if transaction is not None else last.offset), last.offset

    def open_transaction(self, transactional_id: str, topic: str, value: bytes) -> int:
        """Open a transaction with this record; return the epoch of its producer."""
        partition = TopicPartition(topic, 0)
        epoch = self.broker.init_producer(transactional_id, OPEN_SECONDS).epoch
        self.broker.add_partition(transactional_id, epoch, partition)
        self.broker.produce(transactional_id, epoch, partition, [LogRecord(topic, value)])
        return epoch

    def trim(self, topic: str, before_offset: int) -> None:
        self.log(topic).trim(before_offset)

    def recreate(self, topic: str, records: Sequence[RawRecord] = ()) -> None:
        """Another topic of this name, with these records."""
        self.broker.delete(topic)
        self.broker.create(topic, 1)
        for each in records:
            self.log(topic).append(each.key, each.value, each.headers, each.timestamp, None)

    def delete_own_topics(self) -> None:
        for topic in (self.increments, self.snapshots):
            self.broker.delete(topic)

    def recreate_own_topics(self) -> None:
        """Others of their names, empty."""
        for topic in (self.increments, self.snapshots):
            self.recreate(topic)

    def copy_again(self, topic: str, count: int) -> None:
        self.recreate(topic, self.log(topic).committed()[:count])

    def tamper(self, topic: str, kind: RecordKind, change: Change, number: int = -1) -> RawRecord:
        """Change the last record of this kind (or another, by `number`); returns it as it was."""
        log = self.log(topic)
        record = [each for each in log.committed() if kind_of(each.value or b"") is kind][number]
        changed = msgspec.structs.replace(record, value=change(record.value or b""))
        log.records[record.offset] = changed
        return record


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test in a loop of its own, where time jumps to the next timer; at its end every owner is stopped."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        async def whole() -> None:
            try:
                await test(**given)
            finally:
                for each in given.values():
                    if isinstance(each, InMemory):
                        await each.end()

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(whole())

    return run

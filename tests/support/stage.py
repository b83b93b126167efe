"""An app on the session's broker, ready to run: topics, genesis, input, and the question whether it all held.

Statuses come as Any: a test that looks at what is not there fails, which is what it is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.operations import Operation, TriggerSnapshot
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.runtime.context import Context, Identity
from snapreplay.service.service import Service
from snapreplay.service.topics.requirements import ensure_topics
from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from tests.support import apps, reference
from tests.support.deadlines import scaled
from tests.support.kafka import decided
from tests.support.waiting import looks

DEADLINE_SECONDS = 30.0
GROUP = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 200}
"""In virtual time no process pauses: a test does not depend on the machine."""


def session_ms() -> int:
    """Return a session timeout that a test may wait for. A process or a broker that pauses for a moment on a busy
    machine does not exceed it."""
    return int(min(scaled(3), 20) * 1000)


def settings_for(bootstrap_servers: str, **tables: Any) -> Settings:
    """Quick to notice and quick to retry; snapshots only when a test asks for them."""
    return Settings(
        **{
            "kafka": {"bootstrap.servers": bootstrap_servers},
            "instance_id": "one",
            "http": {"port": 0},
            "group": GROUP,
            **tables,
            "snapshot": {"every_seconds": 0, "before_stop": False, **tables.get("snapshot", {})},
            "restore": {"retry_backoff_ms": 50, **tables.get("restore", {})},
        }
    )


class AppTopics:
    """The topics of an app, and payments for its first input."""

    app: App[Any]
    sent: int
    send: Any

    @property
    def input(self) -> str:
        return self.app.inputs[0].name

    @property
    def output(self) -> str:
        return self.app.outputs[0].name

    @property
    def dead_letters(self) -> str:
        return names.dead_letters_topic(self.app.app_id)

    @property
    def increments(self) -> str:
        return names.increments_topic(self.app.app_id)

    @property
    def snapshots(self) -> str:
        return names.snapshots_topic(self.app.app_id)

    async def feed(self, count: int, **extra: Any) -> None:
        """`count` payments more, over 20 keys."""
        first, self.sent = self.sent, self.sent + count
        await self.send((f"k{i % 20}", {"amount": i, **extra}) for i in range(first, first + count))


class Stage(AppTopics):
    """One app, its topics and its input. `await prepare()` first."""

    def __init__(self, bootstrap_servers: str, app: App[Any], partitions: int = 1, **tables: Any) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.app = app
        self.partitions = partitions
        self.tables = tables
        self.sent = 0

    def settings(self, **tables: Any) -> Settings:
        group = {**GROUP, "session_timeout_ms": session_ms()}
        return settings_for(self.bootstrap_servers, **{"group": group, **self.tables, **tables})

    @property
    def cluster(self) -> KafkaCluster:
        return KafkaCluster(self.settings())

    async def prepare(self) -> Stage:
        """Create all topics and write the genesis."""
        settings, cluster = self.settings(), self.cluster
        await ensure_topics(self.app, settings, cluster, create_io_partitions=self.partitions)
        await init_app(self.app, settings, cluster)
        return self

    async def context(self, partition: int = 0, instance_id: str = "one", **tables: Any) -> Context:
        """Return what the parts of one partition are made with; a new process id each time."""
        settings = self.settings(instance_id=instance_id, **tables)
        cluster = KafkaCluster(settings)
        view = await inspect(self.app, settings, cluster)
        identity = Identity.of_this_process(instance_id)
        return Context(self.app, settings, cluster, view, identity, partition, asyncio.Semaphore(2))

    def service(
        self, app: App[Any] | None = None, http: Any = None, cluster: KafkaCluster | None = None, **tables: Any
    ) -> Service[Any]:
        service = Service(app or self.app, self.settings(**tables), http)
        if cluster is not None:
            service._cluster = cluster
        return service

    @asynccontextmanager
    async def started(self, app: App[Any] | None = None, **given: Any) -> AsyncIterator[Any]:
        """A service that was started, LIVE or not, for the length of the block; the arguments of `service`."""
        service = self.service(app, **given)
        await service.start()
        try:
            yield service
        finally:
            await service.stop()

    @asynccontextmanager
    async def running(self, app: App[Any] | None = None, *, records: int = 0, **tables: Any) -> AsyncIterator[Any]:
        """A LIVE service, which has processed so many payments more, for the length of the block."""
        async with self.started(app, **tables) as service:
            await service.wait_live(scaled(DEADLINE_SECONDS))
            if records:
                await self.process(service, records)
            yield service

    async def failure(self, app: App[Any] | None = None, **tables: Any) -> Any:
        """The status of partition 0 of a service that is started, FAILED."""
        async with self.started(app, **tables) as service:
            return await phase(service, "failed")

    async def restored(self, app: App[Any] | None = None, **tables: Any) -> Any:
        """The RestoreStatus of partition 0 of a service that is started and stopped again; all was exactly once."""
        async with self.running(app, **tables) as service:
            await self.assert_exactly_once(service)
            restore = service.restore_status()[0].restore
        assert restore is not None
        return restore

    async def send(self, records: Iterable[tuple[Any, Any]], topic: str | None = None) -> None:
        await asyncio.to_thread(
            reference.send, self.bootstrap_servers, topic or self.input, self.partitions, list(records)
        )

    async def read(self, topic: str) -> list[list[reference.Read]]:
        return await asyncio.to_thread(reference.committed, self.bootstrap_servers, topic, self.partitions)

    async def decided(self) -> None:
        """Wait until each reader of the increments has all that was committed: a commit's answer comes before its
        marker."""
        for number in range(self.partitions):
            await decided(self.cluster, TopicPartition(self.increments, number))

    async def batches(self) -> list[Any]:
        """All committed increments of partition 0, in order."""
        values = [each.value or b"" for each in (await self.read(self.increments))[0]]
        return [decode(value) for value in values if kind_of(value) is RecordKind.INCREMENT]

    async def assert_exactly_once(
        self,
        service: Service[Any],
        rule: Callable[[Any, dict[str, int]], None] = apps.add,
        skipped: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        """Outputs one per input record, in order, and the state of every partition: as folded by hand."""
        inputs = await self.read(self.input)
        await processed(service, {n: len(records) for n, records in enumerate(inputs)})
        outputs, states = reference.balances(self.input, inputs, rule, skipped)
        found = await self.read(self.output)
        for number in range(self.partitions):
            assert reference.decoded(found[number]) == outputs[number], f"partition {number}"
            assert reference.as_plain(service.view(number)) == states[number]

    async def process(self, service: Service[Any], count: int, **extra: Any) -> None:
        """Send so many payments more, and wait until the service has processed all."""
        await self.feed(count, **extra)
        await self.all_processed(service)

    async def all_processed(self, service: Service[Any]) -> None:
        for topic in self.app.inputs:
            ends = {number: len(r) for number, r in enumerate(await self.read(topic.name))}
            await processed(service, ends, topic.name)

    async def all_committed(self, service: Service[Any]) -> None:
        """Wait until all is processed, and each reader of the increments has it."""
        await self.all_processed(service)
        await self.decided()

    async def assert_merged(self, service: Service[Any]) -> None:
        """Outputs and state of the pair follow from one interleaving of both inputs, each whole and in order."""
        await self.all_processed(service)
        left, right, merged = (t.name for t in (*self.app.inputs, *self.app.outputs))
        for number in range(self.partitions):
            inputs = {topic: (await self.read(topic))[number] for topic in (left, right)}
            found = (await self.read(merged))[number]
            expected, state = reference.merged(inputs, found, number)
            assert reference.decoded(found) == expected
            assert reference.as_plain(service.view(number)) == state


async def until(holds: Callable[[], object], what: object = "", seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for a condition; says what it was when it does not come true in time."""
    for pause_s in looks(holds, what, seconds, asyncio.get_running_loop().time):
        await asyncio.sleep(pause_s)


async def processed(service: Service[Any], positions: dict[int, int], topic: str = "") -> None:
    """Wait until an input (the first, if none is named) of each partition is committed up to its position."""

    def there() -> bool:
        failed = [s for s in service.restore_status() if s.phase == "failed"]
        assert not failed, failed[0].error
        done = {
            s.partition: each.position
            for s in service.restore_status()
            for each in s.inputs[::-1]
            if s.phase == "live" and topic in ("", each.topic)
        }
        return all(done.get(n, 0) >= position for n, position in positions.items())

    await until(there, f"positions {positions}")


async def snapshot(service: Service[Any], partition: int = 0) -> str:
    """Trigger a full snapshot and wait until it is pointed to; its id."""
    triggered = service.control.perform(TriggerSnapshot([partition], "test"))

    def ended() -> Operation:
        operation = service.control.operation(triggered.id)
        assert operation is not None
        return operation

    await until(lambda: ended().state != "running", "snapshot")
    (part,) = ended().parts
    assert part.state == "succeeded", part
    assert part.snapshot_id
    return part.snapshot_id


def states(service: Service[Any]) -> list[tuple[str, str]]:
    """(reason, state) of the snapshots it knows, newest first."""
    return [(each.reason, each.state) for each in service.control.document().snapshots]


async def phase(service: Service[Any], name: str, partition: int = 0) -> Any:
    """Wait until the partition is in this phase; its status then."""
    found: list[PartitionStatus] = []

    def there() -> bool:
        status = service.restore_status()
        found[:] = [s for s in status if s.partition == partition and s.phase == name]
        return bool(found)

    await until(there, f"partition {partition} {name}")
    return found[0]


@dataclass
class Past(AppTopics):
    """Batches: 1 and 2, snapshot `first` of batch 2, 4 and 5, snapshot `second` of batch 5, 7 and 8 (3 and 6
    point)."""

    here: Stage
    first: str
    second: str

    @property
    def app(self) -> App[Any]:  # type: ignore[override] # it stays the same
        return self.here.app


async def lived(here: Any, processed: Callable[[], Awaitable[None]], snapshot: Callable[[], Awaitable[str]]) -> Past:
    """Let an owner have this past; how to wait for what was sent, and to take a snapshot."""
    taken = []
    for part in range(3):
        for _ in range(2):
            await here.feed(20)
            await processed()
        if part < 2:
            taken.append(await snapshot())
    return Past(here, *taken)


@pytest.fixture
def past(stage: Any, unique: Callable[[str], str]) -> Callable[..., Awaitable[Past]]:
    async def make(app: Any = None, **tables: Any) -> Past:
        here = await stage(app or apps.ledger(unique("past")), **tables)
        async with here.running() as service:
            return await lived(here, lambda: processed(service, {0: here.sent}), lambda: snapshot(service))

    return make

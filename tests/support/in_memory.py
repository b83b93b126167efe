"""An app on the simulator's Kafka, to which nothing happens, in virtual time: for what needs no broker to be shown.

Statuses come as Any, as in `stage`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.names import dead_letters_topic, increments_topic, snapshots_topic
from snapreplay.app.record import RawRecord
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.init import init_app
from snapreplay.service.ports import TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.runtime.context import Context, Identity
from tests.simulation.broker import Broker
from tests.simulation.cluster import SimCluster
from tests.simulation.faults import Faults
from tests.simulation.log import Log
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Link, Network
from tests.support import apps
from tests.support.owner import Owner
from tests.support.stage import settings_for


class Program:
    """One to which nothing happens."""

    name = "program"
    dead = packets_lost = False

    def crash(self) -> None:
        raise AssertionError("no fault was asked for")

    stall = crash


class InMemory:
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
        names = (increments_topic, snapshots_topic, dead_letters_topic)
        own = [name(self.app.app_id) for name in names]
        for topic in (*(each.name for each in (*self.app.inputs, *self.app.outputs)), *own):
            self.broker.create(topic, 1)
        await init_app(self.app, self.settings(), self.cluster(self.settings()))
        return self

    def settings(self, **tables: Any) -> Settings:
        return settings_for("nowhere:1", **{**self.tables, **tables})

    def cluster(self, settings: Settings | None = None) -> SimCluster:
        rng = random.Random(1)
        loop: Any = asyncio.get_running_loop()
        network = Network(loop, self.broker, Faults(rng, 0, 0), rng)
        return SimCluster(Link(network, Program()), settings or self.settings())

    async def context(
        self, instance_id: str = "one", app: App[Any] | None = None, **tables: Any
    ) -> Context:
        """What the parts of one partition are made with; a new process id each time."""
        settings = self.settings(instance_id=instance_id, **tables)
        cluster, identity = self.cluster(settings), Identity.of_this_process(instance_id)
        view = await inspect(app or self.app, settings, cluster)
        limit = asyncio.Semaphore(2)
        return Context(app or self.app, settings, cluster, view, identity, 0, limit)

    async def owner(
        self, instance_id: str = "one", app: App[Any] | None = None, **tables: Any
    ) -> Owner:
        """Of the partition, not LIVE yet."""
        if not self.broker.topic_ids:
            await self.prepare()
        self.owners.append(Owner(self, await self.context(instance_id, app, **tables)))
        return self.owners[-1]

    @asynccontextmanager
    async def live(self, **given: Any) -> AsyncIterator[Owner]:
        """A LIVE owner for the length of the block."""
        one = await self.owner(**given)
        await one.phase("live")
        yield one
        await one.end()

    async def restored(self, **given: Any) -> Any:
        """The RestoreStatus of an owner that goes LIVE and ends again; all was exactly once."""
        async with self.live(**given) as one:
            await one.position(self.log(self.input).end)
            assert await one.outputs() == [f"{self.input}-0-{n}" for n in range(self.sent)]
            return one.status.restore

    async def failure(self, **given: Any) -> Any:
        """The status of an owner that is started, FAILED."""
        one = await self.owner(**given)
        status = await one.phase("failed")
        await one.end()
        return status

    async def end(self) -> None:
        for each in self.owners:
            await each.end()

    # ---------------------------------------------------------------------------------- the logs

    @property
    def input(self) -> str:
        return self.app.inputs[0].name

    @property
    def increments(self) -> str:
        return increments_topic(self.app.app_id)

    @property
    def snapshots(self) -> str:
        return snapshots_topic(self.app.app_id)

    def log(self, topic: str) -> Log:
        return self.broker.logs[TopicPartition(topic, 0)]

    async def feed(self, count: int, **extra: Any) -> None:
        """`count` payments more, over 20 keys."""
        first, self.sent = self.sent, self.sent + count
        self.send((f"k{i % 20}", {"amount": i, **extra}) for i in range(first, first + count))

    def send(self, records: Iterable[tuple[str, Any]], topic: str = "") -> None:
        """To the first input, or `topic`."""
        log = self.log(topic or self.input)
        for key, value in records:
            log.append(key.encode(), json.dumps(value).encode(), (), 1000 + log.end, None)

    async def read(self, topic: str) -> list[list[RawRecord]]:
        """All committed records, per partition."""
        return [self.log(topic).committed()]


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

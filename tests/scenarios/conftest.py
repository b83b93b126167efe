"""The ground of scenarios: on the session's broker, or on three whose network can be cut."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.checker import verify
from tests.support import apps
from tests.support.child import Child, Family, family
from tests.support.gates import Gate
from tests.support.history import History, history
from tests.support.stage import Stage
from tests.support.three_brokers import ThreeBrokers, three_brokers

HURRY: dict[str, object] = {
    "kafka__request__timeout__ms": 2000,
    "timeouts__fence_ms": 4000,
    "timeouts__commit_ms": 4000,
    "timeouts__transaction_ms": 10_000,
    "restore__retry_backoff_max_ms": 1000,
    "group__rebalance_timeout_ms": 5000,
    "timeouts__revoke_ms": 2000,
    "batch__records_max": 20,
}
"""Gives up single requests in seconds, where a machine in production takes minutes; the two timeouts that decide
whether a restore waits or fails (metadata, progress) keep their 5 minutes."""
ANSWER_S = 20.0
PATIENCE_S = 90.0


class Ground:
    """One test's processes, topics and brokers."""

    def __init__(
        self,
        bootstrap_servers: str,
        children: Family,
        folder: Path,
        unique: Callable[[str], str],
        three: ThreeBrokers | None = None,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._children = children
        self._folder = folder
        self._unique = unique
        self._three = three
        self._gates = 0

    @property
    def three(self) -> ThreeBrokers:
        assert self._three is not None, "this scenario has one broker"
        return self._three

    async def ledger(self, name: str, partitions: int) -> Stage:
        """The app of `Child`'s kinds "ledger" and "busy": topics, genesis, no input yet."""
        app = apps.ledger(self._unique(name))
        return await Stage(self.bootstrap_servers, app, partitions).prepare()

    def gate(self, point: str, passes: int = 0) -> Gate:
        self._gates += 1
        return Gate(self._folder / f"gate-{self._gates}", point, passes)

    def start(self, here: Stage, kind: str = "ledger", gate: Gate | None = None, **settings: object) -> Child:
        given = HURRY | settings
        with gate.armed() if gate is not None else nullcontext():
            return self._children.start(kind, here.app.app_id, **given)

    async def stands_at(self, child: Child, gate: Gate) -> None:
        await asyncio.to_thread(child.until, gate.reached, "the gate", PATIENCE_S)

    async def serves(self, child: Child) -> None:
        if not child.url:
            await asyncio.to_thread(child.wait_http)

    async def all_live(self, child: Child, partitions: int) -> None:
        """Wait until that many are LIVE there; fails at once when one FAILED."""

        def there() -> bool:
            found = child.partitions()
            failed = [p["error"] for p in found.values() if p["phase"] == "failed"]
            assert not failed, failed
            return len([p for p in found.values() if p["phase"] == "live"]) == partitions

        await self.serves(child)
        await asyncio.to_thread(child.until, there, f"{partitions} partitions live", PATIENCE_S)

    async def took_in(self, child: Child, records: int) -> None:
        await self.serves(child)
        what = f"{records} records"
        await asyncio.to_thread(child.until, lambda: child.processed() >= records, what, PATIENCE_S)

    async def judge(self, here: Stage) -> Sequence[History]:
        """Exactly once, by outputs against input and state against both; one chain of increments in each partition,
        each owner's after its predecessor's; and no violation of any rule of the checker's, which shares no code with
        us. What the partitions have been through."""
        async with here.running() as service:
            await here.assert_exactly_once(service)
        verdict = await asyncio.to_thread(verify, self.bootstrap_servers, here.app.app_id, deadline_seconds=PATIENCE_S)
        assert not verdict.violations, str(verdict)
        place = (self.bootstrap_servers, here.increments)
        told = [await asyncio.to_thread(history, *place, number) for number in range(here.partitions)]
        for each in told:
            each.assert_one_chain()
        return told


def leader_of(bootstrap_servers: str, topic: str) -> int:
    """The broker, from 0, that leads its partition 0, as far as the broker that is asked knows."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    found = admin.list_topics(topic, timeout=ANSWER_S).topics[topic]
    return int(found.partitions[0].leader) - 1


SESSION_MS = 10_000
"""Of a broker: after this long the others take over what it led."""


@pytest.fixture
def ground(broker: Any, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Ground]:
    with family(broker.bootstrap_servers, tmp_path) as children:
        yield Ground(broker.bootstrap_servers, children, tmp_path, unique)


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeBrokers]:
    """Three brokers for a whole file: starting them costs seconds. Each test ends with whole links and all of them."""
    with three_brokers({"broker.session.timeout.ms": str(SESSION_MS)}) as brokers:
        yield brokers


@pytest.fixture
def wide(three: ThreeBrokers, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Ground]:
    with family(three.bootstrap_servers, tmp_path) as children:
        try:
            yield Ground(three.bootstrap_servers, children, tmp_path, unique, three)
        finally:
            three.heal()

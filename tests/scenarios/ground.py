"""The common ground of scenarios: an app with its topics, service processes, the judgement at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient

from snapreplay.app import names
from tests.checker import verify
from tests.support import apps
from tests.support.child import Child, Family
from tests.support.gates import Gate
from tests.support.history import History, history
from tests.support.stage import Stage
from tests.support.three_brokers import ThreeBrokers

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
        """Make a gate for one process; see `Gate`."""
        self._gates += 1
        return Gate(self._folder / f"gate-{self._gates}", point, passes)

    def start(
        self, here: Stage, kind: str = "ledger", gate: Gate | None = None, **settings: object
    ) -> Child:
        """A service process of this app."""
        given = HURRY | settings
        if gate is None:
            return self._children.start(kind, here.app.app_id, **given)
        with gate.armed():
            return self._children.start(kind, here.app.app_id, **given)

    async def stands_at(self, child: Child, gate: Gate) -> None:
        """Wait until the process has come to the gate."""
        await asyncio.to_thread(child.until, gate.reached, "the gate", PATIENCE_S)

    async def serves(self, child: Child) -> None:
        """Wait until it answers over HTTP."""
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
        """Wait until that many input records are committed."""
        await self.serves(child)
        what = f"{records} records"
        await asyncio.to_thread(child.until, lambda: child.processed() >= records, what, PATIENCE_S)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return which of the three brokers leads it, as far as a broker knows."""
        return leader_of(self.bootstrap_servers, topic, partition)

    def coordinator(self, here: Stage) -> int:
        """Return which of the three brokers coordinates the app's group."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        asked = admin.describe_consumer_groups([here.app.app_id], request_timeout=ANSWER_S)
        (answer,) = asked.values()
        return int(answer.result(ANSWER_S).coordinator.id) - 1

    async def judge(self, here: Stage) -> Sequence[History]:
        """Exactly once, by outputs against input and state against both; one chain of increments in each partition,
        each owner's after its predecessor's; and no violation of any rule of the checker's, which shares no code with
        us. What the partitions have been through."""
        async with here.running() as service:
            await here.assert_exactly_once(service)
        verdict = await asyncio.to_thread(
            verify, self.bootstrap_servers, here.app.app_id, deadline_seconds=PATIENCE_S
        )
        assert not verdict.violations, str(verdict)
        told = [await asyncio.to_thread(self.history, here, n) for n in range(here.partitions)]
        for each in told:
            each.assert_one_chain()
        return told

    def history(self, here: Stage, partition: int) -> History:
        topic = names.increments_topic(here.app.app_id)
        return history(self.bootstrap_servers, topic, partition)


def leader_of(bootstrap_servers: str, topic: str, partition: int = 0) -> int:
    """The broker, from 0, that leads it, as far as the one that is asked knows."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    found = admin.list_topics(topic, timeout=ANSWER_S).topics[topic]
    return int(found.partitions[partition].leader) - 1


async def still(child: Child, seconds: float, phase: str | None = None) -> None:
    """Check for some seconds that no partition is FAILED, and that those there are stay in `phase`, if one is
    named. There is no condition to wait for: what must not happen is looked for."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        found = await asyncio.to_thread(child.partitions)
        phases = {each["phase"] for each in found.values()}
        assert "failed" not in phases, found
        assert phase is None or phases == {phase}, found
        await asyncio.sleep(0.1)  # between two looks

"""The watch itself on a real broker; what it sees and does about it is in tests/attacks/test_b4_retention.py."""

import asyncio
import logging

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.live import recoverability_monitor as module
from tests.support import apps
from tests.support.stage import until

pytestmark = pytest.mark.kafka


class Counting(KafkaCluster):
    """The real thing; counts the readers it makes, or has none to give."""

    def __init__(self, settings):
        super().__init__(settings)
        self.made, self.down = 0, False

    async def reader(self, **options):
        self.made += 1
        if self.down:
            raise Unreachable("no broker")
        return await super().reader(**options)


@pytest.fixture
async def watched(stage, unique):
    """A LIVE ledger and its cluster."""
    here = await stage(apps.ledger(unique("watch")))
    cluster = Counting(here.settings())
    async with here.running(cluster=cluster) as service:
        yield here, service, cluster


async def test_it_is_not_looked_at_all_the_time(watched):
    """The first look comes within a minute; batches make none."""
    here, service, cluster = watched
    made = cluster.made
    for _ in range(5):
        await here.feed(10)
        await here.all_processed(service)
    assert cluster.made == made
    assert service.restore_status()[0].recoverable is None


async def test_a_look_that_fails_is_only_a_warning(monkeypatch, watched, caplog):
    """Processing goes on, what is known stays, and the next look is tried."""
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.05)
    here, service, cluster = watched
    runner = service._supervisor.runners[0]
    await runner._live.snapshots._watch.close()
    keeper = runner._live.snapshots
    keeper._watch = module.RecoverabilityMonitor(
        runner._context, keeper._committer, keeper._reporter, keeper._want, by_replay=False
    )
    await until(lambda: service.restore_status()[0].recoverable, "looked at")
    cluster.down = True
    with caplog.at_level(logging.WARNING, "snapreplay.partition"):
        await until(
            lambda: caplog.text.count("cannot check whether it is recoverable: no broker") > 1,
            "two warnings",
        )
    assert service.restore_status()[0].recoverable is True
    cluster.down = False
    await here.feed(10)
    await here.assert_exactly_once(service)


async def test_what_was_seen_ends_with_the_incarnation(monkeypatch, stage, unique):
    """Nobody is to read a recoverable of a partition that is another's by now; no task is left."""
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.05)
    here = await stage(apps.ledger(unique("ends")))
    async with here.running() as service:
        await until(lambda: service.restore_status()[0].recoverable, "looked at")
    assert service.restore_status()[0].recoverable is None
    watches = [t for t in asyncio.all_tasks() if "RecoverabilityMonitor" in repr(t.get_coro())]
    assert watches == []

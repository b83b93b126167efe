"""Tests of which partitions run here, as the group says, on a real broker."""

import asyncio
from typing import Any

import pytest

from snapreplay.errors import UsageError
from snapreplay.service import supervisor as module
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.ports import NewTopic
from snapreplay.service.preflight import inspect
from snapreplay.service.supervisor import Supervisor
from tests.support import apps
from tests.support.owner import ends
from tests.support.stage import until
from tests.support.tampering import delete


class Bench:
    """A supervisor without a group: the test says what is assigned."""

    def __init__(self, here, context):
        self.here, self.board = here, StatusBoard()
        self.failed: list[int] = []
        self.arguments = {
            "app": context.app,
            "settings": context.settings,
            "cluster": context.cluster,
            "view": context.view,
            "identity": context.identity,
            "board": self.board,
            "on_failed": lambda number, _: self.failed.append(number),
        }
        self.supervisor = Supervisor(**self.arguments)

    def phases(self):
        return {s.partition: s.phase.value for s in self.board.all()}

    async def live(self, *partitions):
        await until(lambda: self.phases() == dict.fromkeys(partitions, "live"), partitions)

    async def stop(self, last_snapshot=False, deadline_seconds=20.0):
        await self.supervisor.stop(last_snapshot=last_snapshot, deadline_seconds=deadline_seconds)


@pytest.fixture
async def bench(stage, unique):
    """Provide the bench of a ledger with three partitions; stop it at the end."""
    here = await stage(apps.ledger(unique("super")), partitions=3)
    made = Bench(here, await here.context())
    yield made
    await made.stop()


class Ours:
    """A coordinator that gives us everything."""

    gives_away = False

    async def is_assigned_to_us(self, partition):
        return True


@pytest.fixture
def watchful(monkeypatch):
    """Look at the cluster five times a second."""
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.2)


def outcome(heard):
    """Return what a retry became: state and detail."""
    return [(state, detail) for state, _, detail in heard]


async def test_a_cluster_that_is_as_it_was_is_live_again_by_retry(watchful, bench):
    """Still broken it fails again, with the reason of now; repaired it is LIVE, without a new process. What is assigned
    later is not refused any more."""
    output, servers = bench.here.app.outputs[0].name, bench.here.bootstrap_servers
    bench.supervisor.assigned({0, 1})
    await bench.live(0, 1)
    delete(servers, output)
    await until(lambda: bench.phases() == {0: "failed", 1: "failed"}, "failed")
    heard: list[Any] = []
    bench.supervisor.retry(0, ends(heard))
    await until(lambda: heard, "an answer")
    ((state, detail),) = outcome(heard)
    assert state == "failed"
    assert output in detail
    assert bench.phases()[0] == "failed"
    await bench.here.cluster.create_topics([NewTopic(output, 3)])
    for number in (0, 1):
        bench.supervisor.retry(number, ends(heard))
    await bench.live(0, 1)
    bench.supervisor.assigned({0, 1, 2})
    await bench.live(0, 1, 2)
    await until(lambda: len(heard) == 3, "answers")
    assert outcome(heard)[1:] == [("succeeded", "")] * 2
    assert bench.board.get(0).error is None
    bench.supervisor.retry(0, ends(heard))
    await until(lambda: len(heard) == 4, "an answer")
    assert outcome(heard)[3] == ("failed", "the partition is live by now")


async def test_an_answer_from_before_a_retry_does_not_end_it(bench, monkeypatch):
    """A look that began while the cluster was broken comes to its end while a retry asks."""
    looks = list[int]()

    async def first_broken_and_slow(*given, **more):
        looks.append(len(looks))
        if looks[-1]:
            return await inspect(*given, **more)
        await asyncio.sleep(0.5)
        raise UsageError("it was broken")

    bench.supervisor.assigned({0})
    await bench.live(0)
    monkeypatch.setattr(module, "inspect", first_broken_and_slow)
    looking = asyncio.create_task(bench.supervisor._look())
    await until(lambda: looks, "the look")
    heard: list[Any] = []
    bench.supervisor.retry(0, ends(heard))
    await looking
    await until(lambda: heard, "an answer")
    assert outcome(heard) == [("succeeded", "")]
    await bench.live(0)

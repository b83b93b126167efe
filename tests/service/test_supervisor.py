"""Tests of which partitions run here, as the group says, on a real broker."""

import asyncio
from typing import Any

import pytest

from snapreplay.service import supervisor as module
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.partition import lifecycle
from snapreplay.service.ports import NewTopic
from snapreplay.service.publish.owned import claim_record
from snapreplay.service.supervisor import Supervisor
from tests.support import apps
from tests.support.owner import ends
from tests.support.stage import until
from tests.support.tampering import delete, grow

pytestmark = pytest.mark.kafka


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

    async def stop(self, final_snapshot=False, deadline_seconds=20.0):
        await self.supervisor.stop(final_snapshot=final_snapshot, deadline_seconds=deadline_seconds)


@pytest.fixture
async def bench(stage, unique):
    """Provide the bench of a ledger with three partitions; stop it at the end."""
    here = await stage(apps.ledger(unique("super")), partitions=3)
    made = Bench(here, await here.context())
    yield made
    await made.stop()


async def test_an_assignment_starts_and_ends_runners(bench):
    """Those it keeps run on without a fence; those it loses are forgotten."""
    bench.supervisor.assigned({0, 1})
    await bench.live(0, 1)
    kept = bench.supervisor.runners[1]
    epoch = bench.board.get(1).owner_epoch
    bench.supervisor.assigned({1, 2})
    await bench.live(1, 2)
    assert bench.supervisor.runners[1] is kept
    assert bench.board.get(1).owner_epoch == epoch
    bench.supervisor.assigned(set())
    await bench.live()


async def test_a_partition_that_comes_back_waits_for_its_former_runner(bench):
    """Never two with the same transactional id in one process; nothing is done twice."""
    bench.supervisor.assigned({0})
    await bench.live(0)
    await bench.here.send([("0:a", {"amount": 1})] * 50)
    for _ in range(3):
        bench.supervisor.assigned(set())
        bench.supervisor.assigned({0})
    await until(
        lambda: (
            bench.board.get(0) and bench.board.get(0).phase == "live" and bench.board.get(0).inputs[0].position == 50
        ),
        "the input",
    )
    outputs = await bench.here.read(bench.here.app.outputs[0].name)
    assert len(outputs[0]) == 50


async def test_a_partition_that_ends_unasked_is_failed(bench, caplog):
    """Whatever ended it: the status, the log and who listens are told. The others go on."""
    bench.supervisor.assigned({0, 1})
    await bench.live(0, 1)
    (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "partition-0")
    task.cancel()
    await until(lambda: bench.phases() == {0: "failed", 1: "live"}, "failed")
    assert bench.failed == [0]
    assert bench.board.get(0).error.kind == "EndedUnasked"
    assert any("partition 0" in each.message for each in caplog.records if each.levelname == "ERROR")


class Ours:
    """A coordinator that gives us everything."""

    gives_away = False

    async def is_assigned_to_us(self, partition):
        return True


async def test_a_new_assignment_ends_the_pause_after_a_fence(bench, monkeypatch):
    """Another process claimed and died; the group gives us the partition once more, so nobody waits any longer."""
    monkeypatch.setattr(lifecycle, "fenced_pause_seconds", lambda *_: 3600.0)
    bench.supervisor.group = Ours()
    bench.supervisor.assigned({0})
    await bench.live(0)
    other = await bench.here.context(instance_id="two")
    producer = await other.cluster.fence(other.transactional_id)
    await producer.commit(0, (), (claim_record(other, "c"),))
    await producer.discard()
    await bench.here.send([("0:a", {"amount": 1})] * 5)
    await until(lambda: bench.phases() == {0: "fenced"}, "fenced")
    bench.supervisor.assigned({0})
    await bench.live(0)
    await until(lambda: bench.board.get(0).inputs[0].position == 5, "the input")


@pytest.fixture
def watchful(monkeypatch):
    """Look at the cluster five times a second."""
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.2)


async def test_added_partitions_stop_what_runs(watchful, bench, caplog):
    """Keys move at once: that does not wait for a restart. The log says once what to do."""
    bench.supervisor.assigned({0, 1})
    await bench.live(0, 1)
    grow(bench.here.bootstrap_servers, bench.here.app.inputs[0].name, 4)
    await until(lambda: bench.phases() == {0: "failed", 1: "failed"}, "failed")
    error = bench.board.get(0).error
    assert "has 3 partitions, but the inputs have 4" in error.message
    lines = [record.getMessage() for record in caplog.records]
    assert sum(error.hint in line for line in lines) == 1
    assert sum(error.message in line for line in lines) == 3, "the cluster, partition 0, partition 1"


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

"""Which partitions run here, as the group says, on a real broker."""

import asyncio

import pytest

from snapreplay.service import supervisor as module
from snapreplay.service.partition import ownership
from snapreplay.service.partition.claiming import claim_record
from snapreplay.service.status import StatusBoard
from snapreplay.service.supervisor import Supervisor
from tests.support import apps
from tests.support.stage import until
from tests.support.tampering import delete, grow

pytestmark = pytest.mark.kafka


class Bench:
    """A supervisor without a group: the test says what is assigned."""

    def __init__(self, here, context):
        self.here, self.board = here, StatusBoard()
        self.duplicates: list[Exception] = []
        self.supervisor = Supervisor(
            context.app,
            context.settings,
            context.cluster,
            context.view,
            context.identity,
            self.board,
            self.duplicates.append,
        )

    def phases(self):
        return {s.partition: s.phase.value for s in self.board.all()}

    async def live(self, *partitions):
        await until(lambda: self.phases() == dict.fromkeys(partitions, "live"), partitions)

    async def stop(self, final_snapshot=False, deadline_seconds=20.0):
        await self.supervisor.stop(final_snapshot=final_snapshot, deadline_seconds=deadline_seconds)


@pytest.fixture
async def bench(stage, unique):
    """Of a ledger with three partitions; stopped at the end."""
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
            bench.board.get(0)
            and bench.board.get(0).phase == "live"
            and bench.board.get(0).inputs[0].position == 50
        ),
        "the input",
    )
    outputs = await bench.here.read(bench.here.app.outputs[0].name)
    assert len(outputs[0]) == 50


class Ours:
    """A coordinator that gives us everything."""

    async def gives_us(self, partition):
        return True


async def test_a_new_assignment_ends_the_pause_after_a_fence(bench, monkeypatch):
    """Another process claimed and died; the group gives us the partition once more, so nobody waits any longer."""
    monkeypatch.setattr(ownership, "fenced_pause_seconds", lambda *_: 3600.0)
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


async def test_stop_writes_last_snapshots_and_ends_all(bench):
    """And leaves nothing in the loop."""
    bench.supervisor.assigned({0, 1, 2})
    await bench.live(0, 1, 2)
    await bench.here.feed(60)
    await until(lambda: sum(s.records_total for s in bench.board.all()) == 60, "the input")
    await bench.stop(final_snapshot=True)
    assert {s.snapshot.reason for s in bench.board.all()} == {"shutdown"}
    assert set(bench.phases().values()) == {"closed"}
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("partition-")]


async def test_what_does_not_end_in_time_is_cut_off(bench):
    """The log is complete without it: the next owner recovers."""
    bench.supervisor.assigned({0})
    await bench.live(0)
    live = bench.supervisor.runners[0]._live

    async def for_ever():
        await asyncio.sleep(3600)

    live.hand_over = for_ever
    await asyncio.wait_for(bench.stop(final_snapshot=True, deadline_seconds=0.3), 10)
    assert bench.phases() == {0: "closed"}


@pytest.fixture
def watchful(monkeypatch):
    """Look at the cluster five times a second."""
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.2)


async def test_added_partitions_stop_what_runs(watchful, bench):
    """Keys move at once: that does not wait for a restart."""
    bench.supervisor.assigned({0, 1})
    await bench.live(0, 1)
    grow(bench.here.bootstrap_servers, bench.here.app.inputs[0].name, 4)
    await until(lambda: bench.phases() == {0: "failed", 1: "failed"}, "failed")
    assert "has 3 partitions, the inputs have 4" in bench.board.get(0).error.message


async def test_a_deleted_input_stops_what_runs(watchful, bench):
    """By name, though every reader only sees a cluster that does not answer."""
    bench.supervisor.assigned({0})
    await bench.live(0)
    topic = bench.here.app.inputs[0].name
    delete(bench.here.bootstrap_servers, topic)
    await until(lambda: bench.phases() == {0: "failed"}, "failed")
    assert f"topic '{topic}'" in bench.board.get(0).error.message


async def test_added_partitions_also_refuse_what_is_assigned_later(watchful, bench):
    """A rebalance after the change must not begin with the old count."""
    bench.supervisor.assigned({0})
    await bench.live(0)
    grow(bench.here.bootstrap_servers, bench.here.app.inputs[0].name, 4)
    await until(lambda: bench.phases() == {0: "failed"}, "failed")
    bench.supervisor._watch.cancel()
    bench.supervisor.assigned({0, 1})
    await until(lambda: bench.phases() == {0: "failed", 1: "failed"}, "failed")


async def test_nothing_starts_after_stop(bench):
    """A rebalance while the last snapshots are written: no second life begins, which nobody would end."""
    bench.supervisor.assigned({0})
    await bench.live(0)
    stopping = asyncio.create_task(bench.stop(final_snapshot=True))
    await asyncio.sleep(0)
    bench.supervisor.assigned({0, 1})
    await stopping
    bench.supervisor.assigned({1})
    await asyncio.sleep(0.1)
    assert bench.phases() == {0: "closed"}
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("partition-")]

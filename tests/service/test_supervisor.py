"""Which partitions run here, as the group says, on a real broker."""

import asyncio
from types import SimpleNamespace

import pytest

from snapreplay.errors import StopError
from snapreplay.service import preflight
from snapreplay.service import supervisor as module
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.partition import takeover_backoff
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.ports import NewTopic
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.claim import claim_record
from snapreplay.service.supervisor import Supervisor
from snapreplay.service.topics.requirements import MissingInput, own_topics
from tests.support import apps
from tests.support.stage import until
from tests.support.tampering import delete, grow

pytestmark = pytest.mark.kafka


class Bench:
    """A supervisor without a group: the test says what is assigned."""

    def __init__(self, here, context):
        self.here, self.board = here, StatusBoard()
        self.duplicates: list[Exception] = []
        self.arguments = {
            "app": context.app,
            "settings": context.settings,
            "cluster": context.cluster,
            "view": context.view,
            "identity": context.identity,
            "board": self.board,
            "on_duplicate": self.duplicates.append,
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

    async def is_assigned_to_us(self, partition):
        return True


async def test_a_new_assignment_ends_the_pause_after_a_fence(bench, monkeypatch):
    """Another process claimed and died; the group gives us the partition once more, so nobody waits any longer."""
    monkeypatch.setattr(takeover_backoff, "fenced_pause_seconds", lambda *_: 3600.0)
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


@pytest.fixture
def inspections(monkeypatch):
    """How often the cluster was inspected; what is put into `fail` is raised instead."""
    seen = SimpleNamespace(count=0, fail=[])

    async def counted(*arguments, **options):
        seen.count += 1
        if seen.fail:
            raise seen.fail[0]
        return await inspect(*arguments, **options)

    monkeypatch.setattr(module, "inspect", counted)
    return seen


@pytest.mark.parametrize("error", [Unreachable("no broker"), ZeroDivisionError("a defect")])
async def test_a_retry_that_cannot_look_at_the_cluster_ends(inspections, bench, error):
    """With the reason; the partition stays as it was, and the next retry may do better."""
    bench.supervisor.assigned({0})
    await bench.live(0)
    bench.supervisor.runners[0].refuse(StopError("partitions were added"))
    await until(lambda: bench.phases() == {0: "failed"}, "failed")
    inspections.fail.append(error)
    heard = []
    bench.supervisor.retry(0, lambda *told: heard.append(told))
    await until(lambda: heard, "an answer")
    ((state, detail),) = outcome(heard)
    assert (state, str(error) in detail) == ("failed", True)
    assert bench.board.get(0).error.message == "partitions were added"
    inspections.fail.clear()
    bench.supervisor.retry(0, lambda *told: heard.append(told))
    await bench.live(0)
    bench.supervisor.retry(1, lambda *told: heard.append(told))
    assert outcome(heard)[-1] == ("failed", "this process does not own the partition any more")


async def test_a_changed_cluster_is_said_once(watchful, inspections, bench, caplog):
    """However often it is looked at meanwhile."""
    bench.supervisor.assigned({0})
    await bench.live(0)
    inspections.fail.append(StopError("partitions were added"))
    await until(lambda: bench.phases() == {0: "failed"}, "failed")
    before = inspections.count
    await until(lambda: inspections.count > before + 2, "more looks")
    assert caplog.text.count("the cluster has changed") == 1


async def test_the_watch_over_the_cluster_outlives_a_defect(watchful, inspections, bench, caplog):
    """It is logged, and looks again."""
    inspections.fail.append(ZeroDivisionError("a defect"))
    await until(lambda: inspections.count > 2, "more looks")
    assert "the watch over the cluster failed, and goes on" in caplog.text


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
    assert sum(error.message in line for line in lines) == 3, (
        "the cluster, partition 0, partition 1"
    )


def outcome(heard):
    """What a retry became: state and detail."""
    return [(state, detail) for state, _, detail in heard]


async def test_a_cluster_that_is_as_it_was_is_live_again_by_retry(watchful, bench):
    """Still broken it fails again, with the reason of now; repaired it is LIVE, without a new process. What is assigned
    later is not refused any more."""
    output, servers = bench.here.app.outputs[0].name, bench.here.bootstrap_servers
    bench.supervisor.assigned({0, 1})
    await bench.live(0, 1)
    delete(servers, output)
    await until(lambda: bench.phases() == {0: "failed", 1: "failed"}, "failed")
    heard = []
    bench.supervisor.retry(0, lambda *told: heard.append(told))
    await until(lambda: heard, "an answer")
    ((state, detail),) = outcome(heard)
    assert state == "failed"
    assert output in detail
    assert bench.phases()[0] == "failed"
    await bench.here.cluster.create_topics([NewTopic(output, 3)])
    for number in (0, 1):
        bench.supervisor.retry(number, lambda *told: heard.append(told))
    await bench.live(0, 1)
    bench.supervisor.assigned({0, 1, 2})
    await bench.live(0, 1, 2)
    await until(lambda: len(heard) == 3, "answers")
    assert outcome(heard)[1:] == [("succeeded", "")] * 2
    assert bench.board.get(0).error is None
    bench.supervisor.retry(0, lambda *told: heard.append(told))
    await until(lambda: len(heard) == 4, "an answer")
    assert outcome(heard)[3] == ("failed", "the partition is live by now")


async def test_added_partitions_also_refuse_what_is_assigned_later(watchful, bench):
    """A rebalance after the change must not begin with the old count."""
    bench.supervisor.assigned({0})
    await bench.live(0)
    grow(bench.here.bootstrap_servers, bench.here.app.inputs[0].name, 4)
    await until(lambda: bench.phases() == {0: "failed"}, "failed")
    bench.supervisor._watches[0].cancel()
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


async def test_who_cannot_look_before_a_release_says_so_once(bench, monkeypatch, caplog):
    """It looks every second until the cluster answers."""
    monkeypatch.setattr(module, "TOPIC_WATCH_SECONDS", 0.0)
    answers = [Unreachable("no broker")] * 3

    async def ids(_):
        if answers:
            raise answers.pop()
        return {}

    monkeypatch.setattr(bench.supervisor, "_cluster", SimpleNamespace(topic_ids=ids))
    await bench.supervisor._shrink(set())
    assert answers == []
    said = [each for each in caplog.messages if "not released yet" in each]
    assert said == ["partitions are not released yet: no broker"]


async def test_runners_hear_about_every_second_which_topics_there_are(bench, monkeypatch):
    """Of the inputs and of both own topics, as long as the supervisor lives; then its connection is closed."""
    monkeypatch.setattr(module, "TOPIC_WATCH_SECONDS", 0.05)
    seen = []
    monkeypatch.setattr(PartitionRunner, "topics_seen", lambda runner, ids: seen.append(ids))
    supervisor = Supervisor(**bench.arguments)
    supervisor.assigned({0})
    await until(lambda: len(seen) >= 3, "the watch")
    await supervisor.stop(final_snapshot=False, deadline_seconds=20.0)
    names = [
        bench.here.app.inputs[0].name,
        *own_topics(bench.here.app, bench.arguments["settings"]),
    ]
    facts = await bench.here.cluster.topics(names)
    assert seen[-1] == {name: facts[name].topic_id for name in names}


async def test_a_missing_input_is_waited_for_however_often_the_cluster_is_looked_at(
    watchful, bench, monkeypatch
):
    """The partition is not LIVE and says what is missing; it is not refused for good."""
    looked = []

    async def inspected(*arguments, **options):
        try:
            return await preflight.inspect(*arguments, **options)
        except MissingInput as error:
            looked.append(error)
            raise

    monkeypatch.setattr(module, "inspect", inspected)
    bench.supervisor.assigned({0})
    await bench.live(0)
    delete(bench.here.bootstrap_servers, bench.here.app.inputs[0].name)
    await until(lambda: len(looked) >= 2, "two looks")
    await until(lambda: bench.board.get(0).error is not None, "the missing input")
    assert bench.board.get(0).error.kind == "InputMissing"
    assert bench.phases()[0] not in {"live", "failed"}

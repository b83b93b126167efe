"""One partition from assignment to end on a real broker: what it does again, what it leaves to others, and how it
stops."""

import asyncio

import pytest

from snapreplay.service.core.located import DuplicateInstance
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.ports import CommitInDoubt, Unreachable
from snapreplay.service.status import StatusBoard
from snapreplay.snapshots.errors import StopError
from tests.support import apps
from tests.support.stage import until

pytestmark = pytest.mark.kafka


class Bench:
    """A runner as the supervisor has it, without a group."""

    def __init__(self, here, context):
        self.here, self.context, self.board, self.failures = here, context, StatusBoard(), []
        self.phases = []
        self.board.subscribe(lambda status: self.phases.append(status.phase.value))
        self.runner = PartitionRunner(context, self.board, self.failures.append)
        self.task = asyncio.create_task(self.runner.run())

    @property
    def status(self):
        return self.board.get(0)

    async def phase(self, name):
        await until(lambda: self.status.phase == name, name)
        return self.status

    async def position(self, offset):
        await until(lambda: self.status.inputs and self.status.inputs[0].position >= offset, offset)

    async def end(self):
        self.runner.stop(final_snapshot=False)
        await asyncio.wait_for(self.task, 20)


@pytest.fixture
async def bench(stage, unique):
    """`await bench()` starts one; all are stopped at the end."""
    here = await stage(apps.ledger(unique("runner")))
    made = []

    async def make(instance_id="one", **tables):
        made.append(Bench(here, await here.context(instance_id=instance_id, **tables)))
        return made[-1]

    yield make
    for each in made:
        await each.end()


async def test_it_runs_until_it_is_stopped(bench):
    """Every phase in order; CLOSED at the end, once."""
    one = await bench()
    await one.phase("live")
    await one.here.feed(10)
    await one.position(10)
    await one.end()
    order = list(dict.fromkeys(one.phases))
    way = ["fencing", "claiming", "locating", "loading", "advancing", "live"]
    assert order == ["assigned", *way, "closed"]
    assert one.runner.store is None


async def test_a_doubtful_commit_is_followed_by_a_recovery(bench):
    """The log says what happened; nothing is lost or doubled, and the error is gone when it is LIVE again."""
    one = await bench()
    await one.phase("live")
    first_epoch = one.status.owner_epoch
    producer = one.runner._live._committer._producer
    commit = producer.commit

    async def torn(*arguments):
        await commit(*arguments)
        raise CommitInDoubt("the answer was lost")

    producer.commit = torn
    await one.here.feed(10)
    await until(lambda: one.status.owner_epoch > first_epoch, "another incarnation")
    await one.phase("live")
    await one.here.feed(10)
    await one.position(20)
    assert one.status.error is None
    assert len((await one.here.read(one.context.app.outputs[0].name))[0]) == 20


async def test_a_newer_owner_is_left_alone_for_a_while(bench):
    """FENCED, and it says who: the group will take the partition from us, or give it back."""
    one = await bench()
    await one.phase("live")
    two = await bench("two")
    await two.phase("live")
    await one.here.feed(10)
    status = await one.phase("fenced")
    assert status.error.kind == "Superseded"
    assert str(two.context.identity.pid) in status.error.message
    await one.end()
    await two.position(10)
    assert len((await one.here.read(one.context.app.outputs[0].name))[0]) == 10


async def test_a_younger_process_of_the_same_name_ends_it(bench):
    """FAILED, and the supervisor hears of it."""
    one = await bench()
    await one.phase("live")
    await (await bench()).phase("live")
    await one.here.feed(10)
    await one.phase("failed")
    assert isinstance(one.failures[0], DuplicateInstance)


async def test_without_input_the_log_tells_of_a_younger_process_too(bench):
    """Asked when the group makes us suspicious; the younger one asks and goes on."""
    one = await bench()
    await one.phase("live")
    two = await bench()
    await two.phase("live")
    two.runner.suspect()
    one.runner.suspect()
    await one.phase("failed")
    assert isinstance(one.failures[0], DuplicateInstance)
    assert two.runner._asking.done() or await two.runner._asking is None
    assert two.status.phase == "live"


@pytest.mark.parametrize("reached", ["recovering", "live"])
async def test_a_refused_partition_stays_failed(bench, reached, monkeypatch):
    """The cluster changed under us: also a recovery under way ends, and nothing is tried again."""
    one = await bench(timeouts={"metadata_ms": 60_000})
    if reached == "live":
        await one.phase("live")
    one.runner.refuse(StopError("partitions were added", hint="a new app id"))
    status = await one.phase("failed")
    assert (status.error.message, status.error.hint) == ("partitions were added", "a new app id")
    count = len(one.phases)
    await asyncio.sleep(0.3)  # what must not happen has no condition
    assert len(one.phases) == count


async def test_a_defect_stops_this_partition_and_says_so(bench, monkeypatch):
    """FAILED, called a defect; the process goes on."""
    one = await bench()
    await one.phase("live")

    def broken(*_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(one.runner._live, "_settled", broken)
    await one.here.feed(10)
    status = await one.phase("failed")
    assert status.error.kind == "ZeroDivisionError"
    assert "defect" in status.error.hint


async def test_a_stop_does_not_wait_for_a_recovery_or_a_pause(bench):
    """An interrupted restore loses nothing."""
    one = await bench(restore={"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000})

    async def unreachable(_):
        raise Unreachable("no broker")

    one.context.cluster.fence = unreachable
    await until(lambda: one.status.error, "the error")
    await asyncio.wait_for(one.end(), 5)
    assert one.status.phase == "closed"


async def test_snapshots_are_taken_of_live_partitions_only(bench):
    """Asked before: no; asked then: yes, and whoever asked hears of it."""
    one, told = await bench(), []
    assert not one.runner.request_snapshot("test", lambda *news: told.append(news))
    await one.phase("live")
    assert one.runner.request_snapshot("test", lambda *news: told.append(news))
    await until(lambda: told, "the news")
    assert told[0][0] == "skipped"

"""Tests of the time after the process was suspended: who is the owner, and how long that is not known."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.partition import ownership_watch as module
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.runtime.pulse import Pulse
from tests.support import inside
from tests.support.clocks import time_is
from tests.support.in_memory import InMemory, virtual
from tests.support.stage import until
from tests.support.timed_bench import timed_app

START_MS = 1_000_000


class Bench(InMemory):
    """Owner "one" is in a process whose clock jumps when the test says so."""

    def __init__(self):
        super().__init__()
        self.now = 1000.0
        self.pulse = Pulse(lambda: self.now)

    async def context(self, instance_id="one", *given, **tables):
        context = await super().context(instance_id, *given, **tables)
        if instance_id != "one":
            return context
        self.beating = asyncio.create_task(self.pulse.beat())
        return replace(context, pulse=self.pulse)

    def stand_still(self):
        self.now += 90.0
        self.pulse.look()


@pytest.fixture
def bench():
    return Bench()


@virtual
async def test_a_zombie_without_input_finds_out_that_it_is_one(bench):
    """Doubtful at once, FENCED when the log has told of the newer owner, which continues. In between it is never LIVE
    without a doubt."""
    one = await bench.live_owner()
    two = await bench.live_owner("two")
    bench.stand_still()
    seen = []
    one.board.subscribe(lambda status: seen.append((status.phase, bool(status.ownership_doubt))))
    assert "did not run for 90.0 s" in one.status.ownership_doubt
    assert (await one.phase("fenced")).error.kind == "Superseded"
    assert (one.status.ownership_doubt, two.status.phase) == ("", "live")
    assert ("live", True) in seen
    assert ("live", False) not in seen


@virtual
async def test_a_fence_without_a_claim_is_noticed(bench):
    """Somebody is about to own the partition, or died before it did: nothing can be committed any more. It recovers."""
    one = await bench.owner()
    epoch = (await one.phase("live")).owner_epoch
    context = one.context
    await (await context.cluster.fence(context.transactional_id)).discard()
    bench.stand_still()
    await until(lambda: (one.status.owner_epoch or 0) > epoch, "recovered")
    assert (await one.phase("live")).ownership_doubt == ""


@virtual
async def test_the_owner_stays_live_and_is_sure_again(bench):
    """Asked, not restored."""
    one = await bench.owner()
    epoch = (await one.phase("live")).owner_epoch
    bench.stand_still()
    assert one.status.ownership_doubt
    await until(lambda: not one.status.ownership_doubt, "no doubt")
    assert (one.status.phase, one.status.owner_epoch) == ("live", epoch)


@virtual
async def test_no_time_passes_before_the_input_was_read_again(bench, monkeypatch):
    """What came meanwhile is older than the present time, and the client learns of it only a moment later."""
    now_ms, is_silent = [START_MS], [True]
    time_is(monkeypatch, lambda: now_ms[0])
    await bench.prepare(timed_app(), stream_time={"idle_advance_ms": 1000})
    bench.log("steps").append(b"a", b'["set", 5000]', (), START_MS, None)
    one = await bench.owner()
    await one.position(1)
    reader = inside.reader(one.runner)
    poll = reader.poll

    async def silent(records_max, timeout_ms, only=None):
        await asyncio.sleep(timeout_ms / 1000)
        return {} if is_silent[0] else await poll(records_max, 0, only)

    monkeypatch.setattr(reader, "poll", silent)
    await asyncio.sleep(10)  # until it is asked: the poll before is over
    bench.log("steps").append(b"a", b'["cancel", 0]', (), START_MS + 2000, None)
    now_ms[0] += 90_000
    bench.stand_still()
    await asyncio.sleep(10)
    is_silent[0] = False
    await one.position(2)
    told = [json.loads(each.value)[0] for each in bench.log("told").committed()]
    assert "record" in told
    assert "ring" not in told


@virtual
async def test_a_commit_that_began_later_answers_the_question(bench, monkeypatch):
    """Then the group is not asked."""

    async def must_not_be_asked(*_):
        raise AssertionError("asked")

    monkeypatch.setattr(module, "newer_owner", must_not_be_asked)
    one = await bench.live_owner()
    bench.stand_still()
    await one.feed(10)
    assert one.status.ownership_doubt
    await until(lambda: not one.status.ownership_doubt, "no doubt")


@virtual
async def test_without_an_answer_the_doubt_stays(bench, monkeypatch, caplog):
    """Asked again until there is one, also after a defect; why there is none is said once."""
    answers = [Unreachable("no broker"), ZeroDivisionError("a defect"), Unreachable("no broker"), None]

    async def answered(*_):
        assert one.status.ownership_doubt
        answer = answers.pop(0)
        if answer:
            raise answer

    monkeypatch.setattr(module, "newer_owner", answered)
    one = await bench.live_owner()
    bench.stand_still()
    await until(lambda: not one.status.ownership_doubt, "no doubt")
    assert answers == []
    assert [each for each in caplog.messages if "still ours:" in each] == [
        "partition 0: cannot find out whether it is still ours: no broker"
    ]


@virtual
async def test_a_standstill_during_the_recovery_counts_when_it_is_live(bench, monkeypatch):
    """The claim was read back before: a newer one may have come since."""
    recover, doubts = RecoveryDriver.recover, []

    async def interrupted(self):
        recovered = await recover(self)
        bench.stand_still()
        return recovered

    monkeypatch.setattr(RecoveryDriver, "recover", interrupted)
    one = await bench.owner()
    one.board.subscribe(lambda status: doubts.append((status.phase, status.ownership_doubt)))
    await until(lambda: doubts and doubts[-1][0] == "live" and not doubts[-1][1], "no doubt")
    assert next(doubt for phase, doubt in doubts if phase == "live").startswith("the event loop did not run")

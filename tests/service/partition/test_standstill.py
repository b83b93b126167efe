"""After the process stood still, on a real broker: who is the owner, and how long that is not known."""

import asyncio
import dataclasses

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.partition import standstill as module
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.runtime.pulse import Pulse
from tests.support import apps
from tests.support.owner import Owner
from tests.support.stage import until

pytestmark = pytest.mark.kafka


class Bench:
    """Owners in one process, whose clock jumps when the test says so."""

    def __init__(self, here):
        self.here, self.now, self.made = here, 1000.0, []
        self.pulse = Pulse(lambda: self.now)
        self.beating = asyncio.create_task(self.pulse.beat())

    async def owner(self, instance_id="one"):
        context = await self.here.context(instance_id=instance_id)
        if instance_id == "one":
            context = dataclasses.replace(context, pulse=self.pulse)
        self.made.append(Owner(self.here, context))
        return self.made[-1]

    def stand_still(self):
        self.now += 90.0
        self.pulse.look()


@pytest.fixture
async def bench(stage, unique):
    made = Bench(await stage(apps.ledger(unique("still"))))
    yield made
    for each in made.made:
        await each.end()
    made.beating.cancel()


async def test_a_zombie_without_input_finds_out_that_it_is_one(bench):
    """Doubtful at once, FENCED when the log has told of the newer owner, which goes on. In between it is never LIVE
    without a doubt."""
    one = await bench.owner()
    await one.phase("live")
    two = await bench.owner("two")
    await two.phase("live")
    bench.stand_still()
    seen = []
    one.board.subscribe(lambda status: seen.append((status.phase, bool(status.ownership_doubt))))
    assert "stood still for 90.0 s" in one.status.ownership_doubt
    assert (await one.phase("fenced")).error.kind == "Superseded"
    assert (one.status.ownership_doubt, two.status.phase) == ("", "live")
    assert ("live", True) in seen
    assert ("live", False) not in seen


async def test_a_fence_without_a_claim_is_noticed(bench):
    """Somebody is about to own the partition, or died before it did: nothing can be committed any more. It recovers."""
    one = await bench.owner()
    epoch = (await one.phase("live")).owner_epoch
    context = one.runner._context
    await (await context.cluster.fence(context.transactional_id)).discard()
    bench.stand_still()
    await until(lambda: (one.status.owner_epoch or 0) > epoch, "recovered")
    assert (await one.phase("live")).ownership_doubt == ""


async def test_the_owner_stays_live_and_is_sure_again(bench):
    """Asked, not restored."""
    one = await bench.owner()
    epoch = (await one.phase("live")).owner_epoch
    bench.stand_still()
    assert one.status.ownership_doubt
    await until(lambda: not one.status.ownership_doubt, "no doubt")
    assert (one.status.phase, one.status.owner_epoch) == ("live", epoch)


async def test_a_commit_that_began_later_answers_the_question(bench, monkeypatch):
    """Then nobody is asked."""

    async def must_not_be_asked(*_):
        raise AssertionError("asked")

    monkeypatch.setattr(module, "newer_owner", must_not_be_asked)
    monkeypatch.setattr(module, "COMMIT_TELLS_SECONDS", 0.01)
    one = await bench.owner()
    await one.phase("live")
    asked = one.runner._standstill._settle
    committed = asyncio.Event()

    async def later(live):
        await committed.wait()
        await asked(live)

    one.runner._standstill._settle = later
    bench.stand_still()
    await one.here.feed(10)
    await one.position(10)
    committed.set()
    await until(lambda: not one.status.ownership_doubt, "no doubt")


async def test_without_an_answer_the_doubt_stays(bench, monkeypatch, caplog):
    """Asked again until there is one, also after a defect; why there is none is said once."""
    answers = [
        Unreachable("no broker"),
        ZeroDivisionError("a defect"),
        Unreachable("no broker"),
        None,
    ]

    async def answered(*_):
        assert one.status.ownership_doubt
        answer = answers.pop(0)
        if answer:
            raise answer

    monkeypatch.setattr(module, "newer_owner", answered)
    monkeypatch.setattr(module, "ASK_AGAIN_SECONDS", 0.01)
    one = await bench.owner()
    await one.phase("live")
    bench.stand_still()
    await until(lambda: not one.status.ownership_doubt, "no doubt")
    assert answers == []
    assert [each for each in caplog.messages if "still ours:" in each] == [
        "partition 0: cannot find out whether it is still ours: no broker"
    ]


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
    assert next(doubt for phase, doubt in doubts if phase == "live").startswith("the process stood")

"""B9: a doubt must not reload the state. A rolling restart leaves many commits without an answer at once; were each
followed by a full restore, all partitions would load gigabytes from a cluster that is not well."""

import asyncio
from dataclasses import replace

import pytest

from snapreplay.service.core.kafka_errors import CommitInDoubt, Fenced, Unreachable
from snapreplay.service.recovery.executor import RecoveryExecutor
from tests.support import apps, inside
from tests.support.deadlines import scaled
from tests.support.kafka import HASTE_MAX
from tests.support.owner import Owner
from tests.support.stage import until
from tests.support.wire import END_TXN, Proxy, once

pytestmark = pytest.mark.kafka

REQUEST_MS, COMMIT_MS, TRANSACTION_MS = 600, 700, 1400


@pytest.fixture
def loads(monkeypatch):
    """Return what was loaded: one entry per snapshot or genesis."""
    done, load = [], RecoveryExecutor.load

    async def counted(self, effect):
        done.append(effect.start)
        return await load(self, effect)

    monkeypatch.setattr(RecoveryExecutor, "load", counted)
    return done


@pytest.fixture
async def owner(stage, unique):
    """`await owner()` starts the owner of partition 0 of a ledger; it is ended with the test."""
    here, made = await stage(apps.ledger(unique("b9"))), []

    async def start(instance_id="one", app=None, **tables):
        context = await here.context(instance_id=instance_id, **tables)
        made.append(Owner(here, context))
        await made[-1].phase("live")
        return made[-1]

    yield start
    for each in made:
        await each.end()


def quick(servers):
    """Doubt a commit soon; on a busy machine later, as all else is."""
    busy = min(scaled(1), HASTE_MAX)
    kafka = {"bootstrap.servers": servers, "request.timeout.ms": int(REQUEST_MS * busy)}
    return {
        "kafka": kafka,
        "timeouts": {"commit_ms": int(COMMIT_MS * busy), "transaction_ms": int(TRANSACTION_MS * busy)},
    }


async def assert_exactly_once(one, count):
    topic = one.here.input
    await one.position(count)
    assert await one.outputs() == [f"{topic}-0-{n}" for n in range(count)]
    assert sum(each["n"] for each in one.runner.store.committed_view().values()) == count


@pytest.mark.parametrize(("fate", "warm"), [("mute", "merged"), ("reset before", "dropped")])
async def test_b9_a_commit_without_an_answer_reloads_nothing(owner, broker, loads, fate, warm):
    """The log says whether it arrived; the batch in memory is merged or dropped, and the next ones follow."""
    proxy = Proxy(broker.bootstrap_servers)
    async with proxy.through():
        one = await owner(**quick(broker.bootstrap_servers))
        await one.here.feed(10)
        await one.position(10)
        epoch, digest, passed = one.status.owner_epoch, one.status.digest, len(one.phases)
        loads.clear()
        proxy.fault = lambda key: fate if key == END_TXN else "pass"
        await one.here.feed(10)
        await until(lambda: "fencing" in one.phases[passed:], "a doubt")
        proxy.fault = lambda _: "pass"
        restore = await one.again_live(epoch)
        assert (restore.warm, restore.snapshot, restore.mode) == (warm, None, None)
        assert restore.proof.equal
        assert (restore.proof.recorded == digest) == (warm == "dropped")
        await one.here.feed(10)
        await assert_exactly_once(one, 30)
        assert one.status.records_total == 30
        assert not loads
        await one.end()


async def test_b9_a_producer_that_must_be_renewed_reloads_nothing(owner, broker, loads):
    """Its commit was answered OK, after a request of it had gone unanswered: nothing is in doubt."""
    proxy = Proxy(broker.bootstrap_servers)
    async with proxy.through():
        one = await owner()
        epoch = one.status.owner_epoch
        proxy.fault = once(END_TXN, "reset after")
        await one.here.feed(10)
        restore = await one.again_live(epoch)
        assert restore.warm == "kept"
        await one.here.feed(10)
        await assert_exactly_once(one, 20)
        assert len(loads) == 1
        await one.end()


async def test_b9_a_state_that_is_no_map_is_not_reloaded_when_its_producer_is_renewed(
    stage, unique, loads, monkeypatch
):
    """It holds nothing but what was committed at that moment; half a batch in it would need a restore."""
    here = await stage(apps.tape(unique("b9-tape")))
    one = Owner(here, await here.context())
    await one.phase("live")
    epoch, passed = one.status.owner_epoch, len(one.phases)
    producer = one.producer
    monkeypatch.setattr(type(producer), "needs_renewal", property(lambda _: spent[0]))
    spent = [False]
    commit = producer.commit

    async def spending(*arguments):
        offsets = await commit(*arguments)
        spent[0] = True
        return offsets

    producer.commit = spending
    await here.feed(10)
    await until(lambda: "fencing" in one.phases[passed:], "renewed")
    spent[0] = False
    assert (await one.again_live(epoch)).warm == "kept"
    await here.feed(10)
    await one.position(20)
    assert len(await one.outputs()) == 20
    assert len(loads) == 1
    await one.end()


@pytest.mark.parametrize("error", [Fenced, CommitInDoubt, Unreachable], ids=lambda e: e.__name__)
@pytest.mark.parametrize("committed", [True, pytest.param(False, marks=pytest.mark.whole)])
async def test_b9_no_retryable_end_reloads_anything(owner, loads, error, committed):
    """Fenced by the coordinator although nobody claimed, a doubt, or a reader that lost its broker while a batch was
    under way."""
    one = await owner()
    committer, epoch = one.committer, one.status.owner_epoch
    arrived, commit = asyncio.Event(), one.producer.commit

    async def torn(*arguments):
        if committed:
            await commit(*arguments)
        arrived.set()
        if error is Unreachable:
            await asyncio.Event().wait()  # the reader ends it
        raise error("no clean answer")

    async def lost(poll):
        if committer.idle:
            return await poll()
        await arrived.wait()
        raise Unreachable("no broker for the input")

    one.producer.commit = torn
    if error is Unreachable:
        inside.poll_by(one.live, lost)
    await one.here.feed(10)
    restore = await one.again_live(epoch)
    assert restore.warm == ("merged" if committed else "dropped")
    await one.here.feed(10)
    await assert_exactly_once(one, 20)
    assert len(loads) == 1


async def test_b9_doubts_do_not_put_off_the_next_snapshot(owner):
    """Each keeps the state and with it the time since the last snapshot: an interval that every doubt began anew
    would never be over."""
    one = await owner(snapshot={"every_seconds": 300})
    epoch = one.status.owner_epoch
    await one.here.feed(10)
    await one.position(10)
    keeper = one.live.snapshots
    before = keeper.unpointed.pointed_at - 290  # it has been LIVE for so long
    keeper.unpointed = replace(keeper.unpointed, marked_at=before, pointed_at=before)
    one.loses_answers()
    await one.here.feed(10)
    await one.again_live(epoch)
    keeper = one.live.snapshots
    assert asyncio.get_running_loop().time() - keeper.unpointed.pointed_at >= 290
    earlier = keeper.unpointed.marked_at - 10
    keeper.unpointed = replace(keeper.unpointed, marked_at=earlier)
    await until(lambda: one.status.snapshot, "a snapshot")
    assert one.status.snapshot.reason == "interval"


async def test_b9_what_another_owner_has_written_is_loaded(owner, loads):
    """Its batches are not in our memory: a full restore, and not a byte of the batch that was in doubt."""
    one = await owner()
    await one.here.feed(10)
    await one.position(10)
    one.loses_answers()
    two = await owner("two")
    await one.here.feed(10)
    await two.position(20)
    await two.end()
    await until(lambda: "fenced" in one.phases, "fenced")
    await one.phase("live")
    assert one.status.restore.warm is None
    await one.here.feed(10)
    await assert_exactly_once(one, 30)
    assert len(loads) == 3

"""B9: a doubt must not reload the state. A rolling restart leaves many commits without an answer at once; were each
followed by a full restore, all partitions would load gigabytes from a cluster that is not well."""

import pytest

from snapreplay.service.recovery.executor import RecoveryExecutor
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.kafka import HASTE_MAX
from tests.support.owner import Owner
from tests.support.stage import until
from tests.support.wire import END_TXN, Proxy

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

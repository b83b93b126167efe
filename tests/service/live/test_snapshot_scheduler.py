"""Full snapshots of a LIVE partition on a real broker: when they are taken, and whom it is told."""

import asyncio
from typing import Any
from unittest.mock import MagicMock

import pytest

from snapreplay.service.control.protocol import Busy, NotOwned, UnknownPartition
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.snapshot_policy import SnapshotPolicy
from snapreplay.service.core.topic_changes import TopicChange
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.live import snapshot_scheduler as module
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.state import shards
from tests.support import apps
from tests.support.entries import read_entry
from tests.support.stage import snapshot, states, until

pytestmark = pytest.mark.kafka


class SlowAppends(KafkaCluster):
    """The real thing, but a snapshot's producer comes when `gate` is set, or does not come."""

    def __init__(self, settings):
        super().__init__(settings)
        self.gate, self.asked, self.down = asyncio.Event(), 0, False

    async def appender(self):
        self.asked += 1
        if self.down:
            raise Unreachable("no broker for snapshots")
        await self.gate.wait()
        return await super().appender()


@pytest.fixture
async def slow(stage, unique):
    """A LIVE ledger whose snapshots wait: (stage, service, cluster)."""
    here = await stage(apps.ledger(unique("slow")))
    cluster = SlowAppends(here.settings())
    async with here.running(cluster=cluster) as service:
        yield here, service, cluster


async def ended(service, operation):
    await until(lambda: service.control.operation(operation.id).state != "running", "the end")
    return service.control.operation(operation.id)


async def increments_of(here):
    records = (await here.read(f"{here.app.app_id}-increments"))[0]
    return [read_entry(r.value) for r in records if kind_of(r.value) is RecordKind.INCREMENT]


# ---- on demand ---------------------------------------------------------------------------------


async def test_a_triggered_snapshot_exists_also_without_more_input(stage, unique):
    """An empty increment carries its pointer, and the next process starts from exactly it."""
    here = await stage(apps.ledger(unique("trigger")))
    async with here.running() as service:
        await here.feed(30)
        await here.all_processed(service)
        snapshot_id = await snapshot(service)
        assert states(service) == [("trigger", "pointed")]
    last = (await increments_of(here))[-1]
    assert last.ranges == []
    assert last.pointers[0].snapshot_id == snapshot_id
    restore = await here.restored()
    assert restore.snapshot.snapshot_id == snapshot_id


async def test_a_snapshot_of_what_is_snapshotted_is_skipped(stage, unique):
    """The operation names the snapshot that covers it already; nothing is written."""
    here = await stage(apps.ledger(unique("skip")))
    async with here.running() as service:
        first = await ended(service, service.control.trigger_snapshot(None, ""))
        assert [(p.state, p.snapshot_id) for p in first.parts] == [("skipped", None)]
        await here.feed(30)
        await here.all_processed(service)
        snapshot_id = await snapshot(service)
        again = await ended(service, service.control.trigger_snapshot([0], ""))
        assert (again.state, again.parts[0].state) == ("succeeded", "skipped")
        assert again.parts[0].snapshot_id == snapshot_id
        assert len(service.control.snapshots()) == 1


async def test_what_cannot_be_triggered_is_refused(stage, unique):
    """No such partition, or none of ours: nothing is started."""
    here = await stage(apps.ledger(unique("refuse")))
    async with here.running() as service:
        for unknown in (1, -1):
            with pytest.raises(UnknownPartition):
                service.control.trigger_snapshot([0, unknown], "")
        assert service.control.operations() == []
    with pytest.raises(NotOwned):
        service.control.trigger_snapshot([0], "")


# ---- while processing goes on ------------------------------------------------------------------


async def test_processing_goes_on_while_a_snapshot_is_written(slow):
    """Its image is of the batch at its mark, whatever came since; a second trigger is refused meanwhile."""
    here, service, cluster = slow
    await here.feed(40)
    await here.all_processed(service)
    batch = service.restore_status()[0].batch
    triggered = service.control.trigger_snapshot(None, "")
    await until(lambda: cluster.asked, "the snapshot")
    with pytest.raises(Busy):
        service.control.trigger_snapshot(None, "")
    await here.feed(60)
    await here.assert_exactly_once(service)
    assert states(service) == [("trigger", "writing")]
    cluster.gate.set()
    done = await ended(service, triggered)
    assert done.state == "succeeded"
    assert service.control.snapshots()[0].batch == batch
    await here.assert_exactly_once(service)
    await service.stop()
    restore = await here.restored()
    assert restore.snapshot.snapshot_id == done.parts[0].snapshot_id


async def test_what_a_snapshot_left_to_do_is_done_before_the_next_one(slow, monkeypatch):
    """In small steps, also when no batch comes any more: the next mark would do all of it at once."""
    monkeypatch.setattr(shards, "SETTLE_ENTRIES", 1)
    here, service, cluster = slow
    await here.feed(40)
    await here.all_processed(service)
    triggered = service.control.trigger_snapshot(None, "")
    await until(lambda: cluster.asked, "the snapshot")
    await here.feed(60)
    await here.all_processed(service)
    cluster.gate.set()
    assert (await ended(service, triggered)).state == "succeeded"
    store = service._supervisor.runners[0].store
    await until(lambda: not store._shards._unsettled, "nothing left to fold in")
    await here.assert_exactly_once(service)


async def test_whoever_waits_for_a_snapshot_hears_of_its_end(slow):
    """The partition ends while it is written: failed, not running for ever."""
    here, service, cluster = slow
    await here.feed(10)
    await here.all_processed(service)
    triggered = service.control.trigger_snapshot(None, "")
    await until(lambda: cluster.asked, "the snapshot")
    await service.stop()
    operation = service.control.operation(triggered.id)
    assert operation.state == "failed"
    assert "released" in operation.parts[0].detail


async def test_a_snapshot_that_fails_is_told_and_taken_later(slow, monkeypatch):
    """Processing goes on; the policy tries again by itself after a pause."""
    monkeypatch.setattr(module, "RETRY_AFTER_SECONDS", 0.2)
    here, service, cluster = slow
    cluster.down = True
    keeper = service._supervisor.runners[0]._live.snapshots
    await here.feed(10)
    await here.all_processed(service)
    failed = await ended(service, service.control.trigger_snapshot(None, ""))
    assert failed.parts[0].detail == "no broker for snapshots"
    assert states(service) == [("trigger", "failed")]
    keeper._policy = SnapshotPolicy(1, None, 0.0)
    cluster.down = False
    cluster.gate.set()
    await until(lambda: states(service)[0] == ("records", "pointed"), "the next one")
    await here.feed(10)
    await here.assert_exactly_once(service)


# ---- by policy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "reason"), [({"every_records": 20}, "records"), ({"every_seconds": 0.1}, "interval")]
)
async def test_the_policy_takes_snapshots_by_itself(stage, unique, policy, reason):
    """By records and by time; none while nothing changes."""
    here = await stage(apps.ledger(unique("policy")), snapshot=policy)
    async with here.running() as service:
        await here.feed(30)
        await until(lambda: (reason, "pointed") in states(service), "a snapshot")
        taken = len(states(service))
        await asyncio.sleep(0.3)  # longer than the interval: what must not happen has no condition
        assert len(states(service)) == taken
        await here.feed(30)
        await until(lambda: len(states(service)) > taken, "another snapshot")
        await here.assert_exactly_once(service)


async def test_a_graceful_stop_leaves_nothing_to_advance(stage, unique):
    """A last snapshot, pointed to; without the setting none."""
    here = await stage(apps.ledger(unique("stop")))
    async with here.running(snapshot={"before_stop": True}) as service:
        await here.feed(30)
        await here.all_processed(service)
    assert states(service) == [("shutdown", "pointed")]
    last = (await increments_of(here))[-1]
    assert last.pointers[0].batch == last.batch - 1
    async with here.running(snapshot={"before_stop": True}) as again:
        assert again.restore_status()[0].restore.snapshot.batch == last.batch - 1
    assert states(again) == [("restored", "pointed")], "nothing changed, so nothing was written"


def test_a_new_t_quanliang_holds_nothing_before_a_snapshot_in_it_is_pointed_to():
    """Not recoverable until then, although it is there, and its id is the one that the chain bears by now."""
    keeper: Any = object.__new__(module.SnapshotScheduler)
    keeper._context, keeper._committer, keeper._watch = MagicMock(), MagicMock(), MagicMock()
    keeper._reporter, keeper._task, keeper._pointing, keeper._waiting = MagicMock(), None, [], []
    keeper._missing, keeper._since = "", 0.0
    keeper.topic_changed(TopicChange("snaps", "A", "B"))
    (why,) = keeper._watch.topic_missing.call_args.args
    assert "the snapshots in it are gone" in why
    keeper.topic_changed(None)
    assert keeper._watch.topic_missing.call_args.args == (why,)
    keeper._now_pointed("s1")
    assert keeper._watch.topic_missing.call_args.args == ("",)
    assert keeper._watch.saved.called

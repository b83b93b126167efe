"""Full snapshots of a LIVE partition: when they are taken, and whom it is told."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.topic_changes import TopicChange
from snapreplay.service.live import snapshot_scheduler as module
from snapreplay.state import shards
from tests.simulation.cluster import SimCluster
from tests.support import apps
from tests.support.in_memory import virtual
from tests.support.stage import until


@pytest.fixture
def gate(monkeypatch):
    """A snapshot's producer comes when `gate.open` is set, or does not come."""
    made, appender = Gate(), SimCluster.appender

    async def gated(self):
        made.asked += 1
        if made.down:
            raise Unreachable("no broker for snapshots")
        await made.open.wait()
        return await appender(self)

    monkeypatch.setattr(SimCluster, "appender", gated)
    return made


class Gate:
    def __init__(self):
        self.open, self.asked, self.down = asyncio.Event(), 0, False


def asked(one):
    """Ask for a snapshot; what is told of it."""
    told: list[Any] = []
    assert one.runner.request_snapshot("trigger", lambda *news: told.append(news))
    return told


async def answer(told):
    await until(lambda: told, "the end")
    return told[0]


async def fed(bench, one, count):
    await bench.feed(count)
    await one.position(bench.sent)


# ---- on demand ---------------------------------------------------------------------------------


@virtual
async def test_a_snapshot_exists_also_without_more_input_and_is_not_taken_twice(bench):
    """An empty increment carries its pointer, and the next process starts from exactly it. What is in a snapshot
    already is told by its id; nothing is written."""
    async with bench.live() as one:
        assert (await answer(asked(one)))[:2] == ("skipped", None)
        await fed(bench, one, 30)
        snapshot_id = await one.snapshot()
        assert (one.status.snapshot.reason, one.status.snapshot.state) == ("test", "pointed")
        assert (await answer(asked(one)))[:2] == ("skipped", snapshot_id)
        assert one.status.snapshot.snapshot_id == snapshot_id
    last = bench.batches()[-1]
    assert (last.ranges, last.pointers[0].snapshot_id) == ([], snapshot_id)
    assert (await bench.restored()).snapshot.snapshot_id == snapshot_id


@virtual
async def test_records_that_were_skipped_are_in_a_snapshot_too(bench):
    """A recovery by replay would read them again. The next owner counts them as this one did."""
    poison = [("k", {"amount": 1, "poison": True})]
    await bench.prepare(
        apps.ledger("app", apps.refuse_poison), errors={"policy": "dead_letter"}, snapshot={"before_stop": False}
    )
    async with bench.live() as one:
        await fed(bench, one, 3)
        await one.snapshot()
        await bench.send(poison)
        await one.position(4)
        assert (await answer(asked(one)))[0] == "succeeded"
        await bench.send(poison)
        await one.position(5)
    async with bench.live() as one:
        assert (await answer(asked(one)))[0] == "succeeded"


# ---- while processing goes on ------------------------------------------------------------------


@virtual
async def test_processing_goes_on_while_a_snapshot_is_written(bench, gate, monkeypatch):
    """Its image is of the batch at its mark, whatever came since. What it left to do is done before the next one, in
    small steps: the next mark would do all of it at once."""
    monkeypatch.setattr(shards, "SETTLE_ENTRIES", 1)
    async with bench.live() as one:
        await fed(bench, one, 40)
        batch, told = one.status.batch, asked(one)
        await until(lambda: gate.asked, "the snapshot")
        await fed(bench, one, 60)
        assert one.status.snapshot.state == "writing"
        gate.open.set()
        state, snapshot_id, _ = await answer(told)
        assert (state, one.status.snapshot.batch) == ("succeeded", batch)
        (settled,) = one.runner.store.maps.values()
        await until(lambda: not settled.shards.unsettled, "nothing left to fold in")
        await bench.assert_exactly_once(one)
    assert (await bench.restored()).snapshot.snapshot_id == snapshot_id


@virtual
async def test_whoever_waits_for_a_snapshot_hears_of_its_end(bench, gate):
    """The partition ends while it is written: failed, not running for ever."""
    async with bench.live() as one:
        await fed(bench, one, 10)
        told = asked(one)
        await until(lambda: gate.asked, "the snapshot")
    ((state, _, detail),) = told
    assert state == "failed"
    assert "released" in detail


@virtual
async def test_a_snapshot_that_fails_is_told_and_taken_later(bench, gate):
    """Processing goes on; the policy tries again by itself after a pause."""
    await bench.prepare(snapshot={"every_records": 11})
    async with bench.live() as one:
        gate.down = True
        await fed(bench, one, 10)
        assert await answer(asked(one)) == ("failed", None, "no broker for snapshots")
        assert one.status.snapshot.state == "failed"
        gate.down = False
        gate.open.set()
        await fed(bench, one, 10)
        failed_at = asyncio.get_running_loop().time()
        await one.pointed("records")
        assert asyncio.get_running_loop().time() > failed_at + module.RETRY_AFTER_SECONDS / 2
        await bench.assert_exactly_once(one)


# ---- by policy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "reason"), [({"every_records": 20}, "records"), ({"every_seconds": 5}, "interval")])
@virtual
async def test_the_policy_takes_snapshots_by_itself(bench, policy, reason):
    """By records and by time; none while nothing changes."""
    await bench.prepare(snapshot=policy)
    async with bench.live() as one:
        taken = None
        for _ in range(2):
            await bench.feed(30)
            await one.pointed(reason, unlike=taken)
            taken = one.status.snapshot.snapshot_id
            await asyncio.sleep(6)
            assert one.status.snapshot.snapshot_id == taken
        await bench.assert_exactly_once(one)


@virtual
async def test_a_graceful_stop_leaves_nothing_to_advance(bench):
    """A last snapshot, pointed to; none when nothing changed."""
    for _ in range(2):
        one = await bench.owner()
        await one.phase("live")
        if not bench.sent:
            await fed(bench, one, 30)
        one.runner.stop(final_snapshot=True)
        await one.task
        last = bench.batches()[-1]
        assert (last.batch, last.pointers[0].batch) == (2, 1)


# ---- in another topic --------------------------------------------------------------------------


def replaced(bench, one):
    """Another topic of this name; the partition is told as by its watch of topics."""
    old = bench.broker.topic_ids[bench.snapshots]
    bench.recreate(bench.snapshots)
    new = bench.broker.topic_ids[bench.snapshots]
    one.live.snapshots.topic_changed(TopicChange(bench.snapshots, old, new))


@virtual
async def test_a_new_t_quanliang_holds_nothing_before_a_snapshot_in_it_is_pointed_to(bench, gate):
    """Not recoverable until then, although it is there, and its id is the one that the chain bears by now."""
    async with bench.live() as one:
        await fed(bench, one, 10)
        replaced(bench, one)
        for _ in range(2):
            assert one.status.recoverable is False
            assert "the snapshots in it are gone" in one.status.unrecoverable_reason
            one.live.snapshots.topic_changed(None)
        gate.open.set()
        await one.pointed("retention")
        one.live.snapshots.topic_changed(None)
        assert one.status.recoverable is not False
        taken = one.status.snapshot.snapshot_id
    assert (await bench.restored()).snapshot.snapshot_id == taken


@virtual
async def test_who_waits_for_a_pointer_into_a_deleted_topic_waits_for_the_next_snapshot(bench, gate):
    """The pointer is dropped: nothing else would ever answer."""
    gate.open.set()
    async with bench.live() as one:
        await fed(bench, one, 10)
        told = asked(one)
        await until(lambda: one.committer.chain.new_pointer is not None, "a pointer")
        assert not told
        replaced(bench, one)
        await one.pointed("retention")
        assert told[0][:2] == ("succeeded", one.status.snapshot.snapshot_id)

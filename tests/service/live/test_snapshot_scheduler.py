"""Full snapshots of a LIVE partition: when they are taken, and whom it is told."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from snapreplay.service.control.restore_plan import Rates
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.topic_changes import TopicChange
from snapreplay.service.live import recoverability_monitor
from snapreplay.service.live import snapshot_scheduler as module
from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.service.runtime.cooperative import throttled
from snapreplay.state import shards
from tests.simulation.cluster import SimCluster
from tests.support import apps
from tests.support.in_memory import virtual
from tests.support.owner import ends
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
    assert one.runner.request_snapshot("trigger", ends(told))
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
async def test_a_snapshot_has_a_share_of_the_loop_while_commits_follow_each_other(bench, monkeypatch):
    """The last one, of a stop, has all of it."""
    shares = []

    def noted(share, is_busy):
        shares.append((share, is_busy()))
        return throttled(share, is_busy)

    monkeypatch.setattr(module, "throttled", noted)
    one = await bench.owner()
    await one.phase("live")
    await fed(bench, one, 40)
    told = asked(one)
    assert (await answer(told))[0] == "succeeded"
    await fed(bench, one, 60)
    one.runner.stop(final_snapshot=True)
    await one.task
    assert (shares, len(bench.batches()[-1].pointers)) == ([(module.SHARE, True)], 2)


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


# ---- by the objective --------------------------------------------------------------------------


@virtual
async def test_the_objective_takes_snapshots_by_itself(bench, monkeypatch):
    """Each before a restore would take longer than it; the status and the plan predict alike, and the next restore is
    compared with its prediction. Never more than one a second."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.5)
    await bench.prepare(restore={"objective_seconds": 0.21})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        taken = None
        for _ in range(3):
            await fed(bench, one, 30)
            await asyncio.sleep(1.5)
            assert one.status.snapshot is None or one.status.snapshot.snapshot_id == taken
            await fed(bench, one, 30)
            await one.pointed("objective", unlike=taken)
            taken = one.status.snapshot.snapshot_id
            assert one.status.objective.is_met
        await fed(bench, one, 30)
        await asyncio.sleep(1)
        objective, plan = one.status.objective, one.status.restore_plan
        assert objective.predicted_seconds == pytest.approx(plan.first.predicted_seconds)
        assert objective.predicted_seconds == pytest.approx(0.203, abs=0.0005)
        assert objective.fresh_seconds < objective.predicted_seconds
        await bench.assert_exactly_once(one)
    assert one.status.objective is None
    restore = await bench.restored()
    assert restore.snapshot.snapshot_id == taken
    assert restore.predicted_seconds == pytest.approx(0.2, abs=0.01)


@virtual
async def test_an_objective_that_no_snapshot_can_meet_is_said_once(bench, caplog):
    """The status says why. Snapshots keep a restore within twice the least, and come no oftener."""
    await bench.prepare(restore={"objective_seconds": 0.1})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=1000)
        for _ in range(3):
            await fed(bench, one, 20)
            await asyncio.sleep(30)
        assert one.status.snapshot is None
        found = one.status.objective
        assert (found.is_met, found.fresh_seconds) == (False, 0.2)
        assert "Snapshots keep it within 0.40 s" in found.reason
        await fed(bench, one, 150)
        await one.pointed("objective")
    said = [each for each in caplog.messages if "restore.objective_seconds is not met" in each]
    assert len(said) == 1


@virtual
async def test_a_burst_misses_the_objective_only_until_a_snapshot_is_pointed_to(bench, gate, caplog):
    """The records of a snapshot that is being written still count. That it is met again is said, too."""
    await bench.prepare(restore={"objective_seconds": 0.21})
    caplog.set_level("INFO")
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        await asyncio.sleep(1.5)
        await fed(bench, one, 150)
        await until(lambda: gate.asked, "the snapshot")
        await until(lambda: one.status.objective and not one.status.objective.is_met, "the objective is missed")
        await fed(bench, one, 30)
        await until(lambda: "180 records came since the newest" in one.status.objective.reason, "those that came since")
        gate.open.set()
        await one.pointed("objective")
        await until(lambda: one.status.objective.is_met, "it is met again")
    assert any("restore.objective_seconds is met again" in each for each in caplog.messages)


@virtual
async def test_the_owner_takes_the_snapshots_of_its_objective_itself(bench, caplog):
    """Also where jobs write snapshots: a job knows nothing of it. That is no missed proposal."""
    await bench.prepare(restore={"objective_seconds": 0.21}, snapshot={"by": "jobs"})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        await asyncio.sleep(1.5)
        await fed(bench, one, 100)
        await one.pointed("objective")
    assert not [each for each in caplog.messages if "no proposal was adopted" in each]


@virtual
async def test_snapshots_for_the_objective_do_not_follow_each_other_at_once(bench):
    """The first one of an ownership need not wait, each further one waits for its second."""
    await bench.prepare(restore={"objective_seconds": 0.21})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        marked_at, taken = [], None
        for _ in range(3):
            await fed(bench, one, 100)
            await one.pointed("objective", unlike=taken)
            marked_at.append(one.live.snapshots.unpointed.marked_at)
            taken = one.status.snapshot.snapshot_id
        assert all(after - before >= 1 for before, after in pairwise(marked_at))
        assert marked_at[-1] - marked_at[0] < 10


@virtual
async def test_markers_of_the_input_count_in_the_objective_as_they_do_in_the_plan(bench, monkeypatch):
    """Rates are of offsets. Of an input where each record has a marker, a recovery passes two for each record."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.5)
    await bench.prepare(restore={"objective_seconds": 1})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        log = TopicPartition(bench.input, 0)
        for number in range(40):
            name = f"other-{number}"
            epoch = bench.broker.init_producer(name, 60).epoch
            bench.broker.add_partition(name, epoch, log)
            bench.broker.produce(name, epoch, log, [LogRecord(bench.input, b'{"amount": 1}', b"k")])
            bench.broker.end_transaction(name, epoch, commit=True)
        await one.position(79)
        await asyncio.sleep(2)
        plan, objective = one.status.restore_plan, one.status.objective
        assert plan.first.records in (79, 80)
        assert objective.predicted_seconds == pytest.approx(plan.first.predicted_seconds, abs=0.0002)


@virtual
async def test_a_gap_in_the_input_is_forgotten_with_the_next_snapshot(bench):
    """It lies before the snapshot, so what comes after it is predicted by its own offsets."""
    await bench.prepare(restore={"objective_seconds": 10})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        log, size = TopicPartition(bench.input, 0), 2000
        epoch = bench.broker.init_producer("aborted", 60).epoch
        bench.broker.add_partition("aborted", epoch, log)
        bench.broker.produce("aborted", epoch, log, [LogRecord(bench.input, b'{"amount": 1}', b"k")] * size)
        bench.broker.end_transaction("aborted", epoch, commit=False)
        await fed(bench, one, 10)
        await until(lambda: one.status.objective.predicted_seconds > 0.2 + size / 10_000, "the gap counts")
        await one.snapshot()
        await fed(bench, one, 10)
        await asyncio.sleep(1)
        objective = one.status.objective
        assert objective.predicted_seconds - objective.fresh_seconds == pytest.approx(10 / 10_000)

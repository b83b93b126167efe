"""Full snapshots of a LIVE partition: when they are taken, and who learns it."""

import asyncio
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay.service.control.restore_plan import Rates
from snapreplay.service.core.inspected import TopicChange
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.live import recoverability_monitor
from snapreplay.service.live import snapshot_scheduler as module
from snapreplay.service.live.snapshot_scheduler import SnapshotScheduler, Trimmer
from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.service.runtime.cooperative import throttled
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.snapshots.plan import retention_floors
from snapreplay.state import shards
from tests.simulation.cluster import SimCluster
from tests.simulation.producer import SimProducer
from tests.support import apps
from tests.support.in_memory import InMemory, virtual
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
    """Ask for a snapshot; what is reported of it."""
    told: list[Any] = []
    assert one.runner.request_snapshot("trigger", ends(told))
    return told


async def answer(told):
    await until(lambda: told, "the end")
    return told[0]


# ---- on demand ---------------------------------------------------------------------------------


async def test_a_snapshot_exists_also_without_more_input_and_is_not_taken_twice(bench):
    """An empty increment carries its pointer, and the next process starts from exactly it. What is in a snapshot
    already is named by its id; nothing is written."""
    async with bench.live() as one:
        assert (await answer(asked(one)))[:2] == ("skipped", None)
        await one.feed(30)
        snapshot_id = await one.snapshot()
        assert (one.status.snapshot.reason, one.status.snapshot.state) == ("test", "pointed")
        assert (await answer(asked(one)))[:2] == ("skipped", snapshot_id)
        assert one.status.snapshot.snapshot_id == snapshot_id
    last = bench.batches()[-1]
    assert (last.ranges, last.pointers[0].snapshot_id) == ([], snapshot_id)
    assert (await bench.restored()).snapshot.snapshot_id == snapshot_id


async def test_records_that_were_skipped_are_in_a_snapshot_too(bench):
    """A recovery by replay would read them again. The next owner counts them as this one did."""
    poison = [("k", {"amount": 1, "poison": True})]
    await bench.prepare(
        apps.ledger("app", apps.refuse_poison), errors={"policy": "dead_letter"}, snapshot={"before_stop": False}
    )
    async with bench.live(records=3) as one:
        await one.snapshot()
        await bench.send(poison)
        await one.position(4)
        assert (await answer(asked(one)))[0] == "succeeded"
        await bench.send(poison)
        await one.position(5)
    async with bench.live() as one:
        assert (await answer(asked(one)))[0] == "succeeded"


# ---- while processing continues ------------------------------------------------------------------


async def test_processing_continues_while_a_snapshot_is_written(bench, gate, monkeypatch):
    """Its image is of the batch at its mark, despite later ones. What it left to do is done before the next one, in
    small steps: the next mark would do all of it at once."""
    monkeypatch.setattr(shards, "SETTLE_ENTRIES", 1)
    async with bench.live(records=40) as one:
        batch, told = one.status.batch, asked(one)
        await until(lambda: gate.asked, "the snapshot")
        await one.feed(60)
        assert one.status.snapshot.state == "writing"
        gate.open.set()
        state, snapshot_id, _ = await answer(told)
        assert (state, one.status.snapshot.batch) == ("succeeded", batch)
        (settled,) = one.runner.store.maps.values()
        await until(lambda: not settled.shards.unsettled, "nothing left to fold in")
        await bench.assert_exactly_once(one)
    assert (await bench.restored()).snapshot.snapshot_id == snapshot_id


async def test_a_batch_whose_commit_is_under_way_is_in_no_snapshot(bench, monkeypatch):
    """The snapshot waits for the answer, and then holds the batch."""
    begun, answered, commit = asyncio.Event(), asyncio.Event(), SimProducer.commit

    async def held(self, partition, outputs, records):
        begun.set()
        await answered.wait()
        return await commit(self, partition, outputs, records)

    async with bench.live(records=40) as one:
        batch = one.status.batch
        monkeypatch.setattr(SimProducer, "commit", held)
        await bench.feed(20)
        await begun.wait()
        told = asked(one)
        asyncio.get_running_loop().call_later(1.0, answered.set)
        assert (await answer(told))[0] == "succeeded"
        assert one.status.snapshot.batch > batch
        await one.position(bench.sent)
        await bench.assert_exactly_once(one)


async def test_a_snapshot_has_a_share_of_the_loop_while_commits_follow_each_other(bench, monkeypatch):
    """The last one, of a stop, has all of it."""
    shares = []

    def noted(share, is_busy):
        shares.append((share, is_busy()))
        return throttled(share, is_busy)

    monkeypatch.setattr(module, "throttled", noted)
    one = await bench.live_owner(records=40)
    told = asked(one)
    assert (await answer(told))[0] == "succeeded"
    await one.feed(60)
    one.runner.stop(last_snapshot=True)
    await one.task
    assert (shares, len(bench.batches()[-1].pointers)) == ([(module.SHARE, True)], 2)


async def test_whoever_waits_for_a_snapshot_hears_of_its_end(bench, gate):
    """The partition ends while it is written: failed, not running for ever."""
    async with bench.live(records=10) as one:
        told = asked(one)
        await until(lambda: gate.asked, "the snapshot")
    ((state, _, detail),) = told
    assert state == "failed"
    assert "released" in detail


async def test_a_snapshot_that_fails_is_reported_and_taken_later(bench, gate):
    """Processing continues; the policy tries again by itself after a pause."""
    await bench.prepare(snapshot={"every_records": 11})
    async with bench.live() as one:
        gate.down = True
        await one.feed(10)
        assert await answer(asked(one)) == ("failed", None, "no broker for snapshots")
        assert one.status.snapshot.state == "failed"
        gate.down = False
        gate.open.set()
        await one.feed(10)
        failed_at = asyncio.get_running_loop().time()
        await one.pointed("records")
        assert asyncio.get_running_loop().time() > failed_at + module.RETRY_AFTER_SECONDS / 2
        await bench.assert_exactly_once(one)


async def test_snapshots_that_fail_half_way_do_not_fill_the_topic(bench, monkeypatch):
    """What they leave is not trimmed while none succeeds. When one can be written again, it is."""
    appender, failing = SimCluster.appender, [True]

    async def failing_at_the_manifest(self):
        made: Any = await appender(self)
        append, appended = made.append, list[Any]()

        async def appends(*given):
            if failing and appended:
                raise Unreachable("no leader")
            appended.append(given)
            return await append(*given)

        made.append = appends
        return made

    monkeypatch.setattr(SimCluster, "appender", failing_at_the_manifest)
    await bench.prepare(snapshot={"every_records": 5, "jitter_ratio": 0})
    async with bench.live(records=10) as one:
        await asyncio.sleep(1800)
        assert 4 < bench.log(bench.snapshots).end < 12
        failing.clear()
        await until(lambda: one.status.snapshot.state == "pointed", "a snapshot", module.RETRY_AFTER_SECONDS_MAX)


# ---- by policy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "reason"), [({"every_records": 20}, "records"), ({"every_seconds": 5}, "interval")])
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
async def test_one_that_is_due_by_time_is_hardly_late():
    """With the looks of an idle partition as they are shipped: with the longer ones of `bench` it comes later."""
    bench = await InMemory().prepare(snapshot={"every_seconds": 5})
    async with bench.live(records=30) as one:
        await one.pointed("interval")
        begun = asyncio.get_running_loop().time()
        await one.feed(30)
        await one.pointed("interval", unlike=one.status.snapshot.snapshot_id)
        assert asyncio.get_running_loop().time() - begun < 5  # the interval began with the one before
        await bench.assert_exactly_once(one)


async def test_a_graceful_stop_leaves_nothing_to_advance(bench):
    """A last snapshot, pointed to; none when nothing changed."""
    for _ in range(2):
        one = await bench.live_owner()
        if not bench.sent:
            await one.feed(30)
        one.runner.stop(last_snapshot=True)
        await one.task
        last = bench.batches()[-1]
        assert (last.batch, last.pointers[0].batch) == (2, 1)


# ---- in another topic --------------------------------------------------------------------------


def replaced(bench, one):
    """Another topic of this name; the partition learns it as from its watch of topics."""
    old = bench.broker.topic_ids[bench.snapshots]
    bench.recreate(bench.snapshots)
    new = bench.broker.topic_ids[bench.snapshots]
    one.live.snapshots.topic_changed(TopicChange(bench.snapshots, old, new))


async def test_a_new_t_quanliang_holds_nothing_before_a_snapshot_in_it_is_pointed_to(bench, gate):
    """Not recoverable until then, although it is there, and the chain has its id by now."""
    async with bench.live(records=10) as one:
        replaced(bench, one)
        for _ in range(2):
            assert one.status.recoverable is False
            assert "its snapshots are lost" in one.status.unrecoverable_reason
            one.live.snapshots.topic_changed(None)
        gate.open.set()
        await one.pointed("retention")
        one.live.snapshots.topic_changed(None)
        assert one.status.recoverable is not False
        taken = one.status.snapshot.snapshot_id
    assert (await bench.restored()).snapshot.snapshot_id == taken


async def test_who_waits_for_a_pointer_into_a_deleted_topic_waits_for_the_next_snapshot(bench, gate):
    """The pointer is dropped: nothing else would ever answer."""
    gate.open.set()
    async with bench.live(records=10) as one:
        told = asked(one)
        await until(lambda: one.committer.chain.new_pointer is not None, "a pointer")
        assert not told
        replaced(bench, one)
        await one.pointed("retention")
        assert told[0][:2] == ("succeeded", one.status.snapshot.snapshot_id)


# ---- by the objective --------------------------------------------------------------------------


async def test_the_objective_takes_snapshots_by_itself(bench, monkeypatch):
    """Each before a restore would take longer than it; the status and the plan predict alike, and the next restore is
    compared with its prediction. Never more than one a second."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.5)
    await bench.prepare(restore={"objective_seconds": 0.21})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        taken = None
        for _ in range(3):
            await one.feed(30)
            await asyncio.sleep(1.5)
            assert one.status.snapshot is None or one.status.snapshot.snapshot_id == taken
            await one.feed(30)
            await one.pointed("objective", unlike=taken)
            taken = one.status.snapshot.snapshot_id
            assert one.status.objective.is_met
        await one.feed(30)
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


async def test_an_objective_that_no_snapshot_can_meet_is_said_once(bench, caplog):
    """The status says why. Snapshots keep a restore within twice the least, and come no oftener."""
    await bench.prepare(restore={"objective_seconds": 0.1})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=1000)
        for _ in range(3):
            await one.feed(20)
            await asyncio.sleep(30)
        assert one.status.snapshot is None
        found = one.status.objective
        assert (found.is_met, found.fresh_seconds) == (False, 0.2)
        assert "Snapshots keep it within 0.40 s" in found.reason
        await one.feed(150)
        await one.pointed("objective")
    said = [each for each in caplog.messages if "restore.objective_seconds is not met" in each]
    assert len(said) == 1


async def test_a_burst_misses_the_objective_only_until_a_snapshot_is_pointed_to(bench, gate, caplog):
    """The records of a snapshot that is being written still count. That it is met again is said, too."""
    await bench.prepare(restore={"objective_seconds": 0.21})
    caplog.set_level("INFO")
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        await asyncio.sleep(1.5)
        await one.feed(150)
        await until(lambda: gate.asked, "the snapshot")
        await until(lambda: one.status.objective and not one.status.objective.is_met, "the objective is missed")
        await one.feed(30)
        await until(lambda: "180 records came since the newest" in one.status.objective.reason, "those that came since")
        gate.open.set()
        await one.pointed("objective")
        await until(lambda: one.status.objective.is_met, "it is met again")
    assert any("restore.objective_seconds is met again" in each for each in caplog.messages)


async def test_snapshots_for_the_objective_do_not_follow_each_other_at_once(bench):
    """The first one of an ownership need not wait, each further one waits for its second."""
    await bench.prepare(restore={"objective_seconds": 0.21})
    async with bench.live() as one:
        one.context.rates.known = Rates(changes_per_second=10_000)
        marked_at, taken = [], None
        for _ in range(3):
            await one.feed(100)
            await one.pointed("objective", unlike=taken)
            marked_at.append(one.live.snapshots.unpointed.marked_at)
            taken = one.status.snapshot.snapshot_id
        assert all(after - before >= 1 for before, after in pairwise(marked_at))
        assert marked_at[-1] - marked_at[0] < 10


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
        await one.feed(10)
        await until(lambda: one.status.objective.predicted_seconds > 0.2 + size / 10_000, "the gap counts")
        await one.snapshot()
        await one.feed(10)
        await asyncio.sleep(1)
        objective = one.status.objective
        assert objective.predicted_seconds - objective.fresh_seconds == pytest.approx(10 / 10_000)


async def test_a_snapshot_that_is_cancelled_before_its_first_step_does_not_prevent_the_next_one(bench, monkeypatch):
    """Its topic is replaced in the same turn of the loop."""
    mark = SnapshotScheduler._mark
    marked: list[str] = []

    def marks(scheduler, reason):
        if not marked:
            asyncio.get_running_loop().call_soon(replaced, bench, one)  # before the first step of the task
        marked.append(reason)
        return mark(scheduler, reason)

    monkeypatch.setattr(SnapshotScheduler, "_mark", marks)
    async with bench.live(records=10) as one:
        told = asked(one)
        await one.pointed("retention")
        assert marked == ["trigger", "retention"]
        assert told[0][:2] == ("succeeded", one.status.snapshot.snapshot_id)


async def test_a_snapshot_that_waits_is_taken_back(bench, gate):
    """Nothing is written for it. One that has begun is written to its end; a second request gets the next one."""
    await bench.prepare()
    async with bench.live(records=10) as one:
        first = asked(one)
        await until(lambda: gate.asked, "the first one")
        await one.feed(10)
        told: list[Any] = []
        done = ends(told)
        one.runner.request_snapshot("trigger", done)
        one.runner.withdraw(done)
        gate.open.set()
        assert (await answer(first))[0] == "succeeded"
        await asyncio.sleep(60)  # virtual
        assert (gate.asked, told) == (1, [])
        again = asked(one)
        assert (await answer(again))[0] == "succeeded"
        assert gate.asked == 2


async def test_a_snapshot_that_was_cancelled_in_the_last_moment_has_no_pointer(bench, gate):
    """It is being marked when the operation is cancelled: it is written without a message."""
    await bench.prepare()
    async with bench.live(records=10) as one:
        gate.open.set()
        told: list[Any] = []

        def cancelled(*news):
            told.append(news)
            return True

        one.runner.request_snapshot("trigger", cancelled)
        await until(lambda: one.status.snapshot and one.status.snapshot.state == "pointed", "its pointer")
        assert told == [("running", None, "")]


def starts(bench):
    """Log starts of (increments, snapshots)."""
    return (bench.log(bench.increments).start, bench.log(bench.snapshots).start)


async def snapshots(bench, count, **tables):
    """Let an owner write pointed snapshots, with something new in each. Return the last increment."""
    await bench.prepare(**tables)
    async with bench.live() as one:
        for _ in range(count):
            await one.feed(10)
            await one.snapshot()
        await asyncio.sleep(1)  # virtual: for the last trim
        return one.live.last


async def test_nothing_is_trimmed_before_enough_snapshots_exist(bench):
    """With one snapshot fewer than are kept, the genesis is still there to fall back to."""
    await snapshots(bench, 2, retention={"snapshots_kept": 3})
    assert starts(bench) == (0, 0)


async def test_both_topics_begin_at_what_the_oldest_kept_snapshot_needs(bench):
    """Four snapshots, two kept: the floors are the third one's, and the app still comes back from there."""
    last = await snapshots(bench, 4, retention={"snapshots_kept": 2})
    newest, oldest = last.pointers
    assert starts(bench) == (oldest.increment_offset, oldest.first_chunk_offset)
    assert (await bench.restored()).snapshot.snapshot_id == newest.snapshot_id


async def test_what_was_asked_before_a_standstill_is_no_reason_to_trim(bench, monkeypatch):
    """The snapshots topic may have been replaced meanwhile (seed 1403589); the next snapshot tries again."""
    last = await snapshots(bench, 2, retention={"snapshots_kept": 3})
    now, topic_ids = [0.0], SimCluster.topic_ids
    pulse = Pulse(lambda: now[0])
    beating = asyncio.create_task(pulse.beat())
    await asyncio.sleep(0)  # the first beat
    context = replace(await bench.context(retention={"snapshots_kept": 2}), pulse=pulse)
    floors = retention_floors(last, 10_000, 2)
    assert floors is not None

    async def frozen(*asked):
        ids = await topic_ids(*asked)
        now[0] += 5.0
        return ids

    with monkeypatch.context() as still:
        still.setattr(SimCluster, "topic_ids", frozen)
        await trimmed(context, last)
    assert starts(bench) == (0, 0)
    await trimmed(context, last)
    assert starts(bench) == tuple(floors)
    beating.cancel()


async def trimmed(context, last):
    """Trim as if a pointer was committed with `last`."""
    trimmer = Trimmer(context)
    trimmer.pointed(last, 10_000)
    await asyncio.sleep(0.1)
    await trimmer.close()


@pytest.mark.parametrize("old", ["snapshots", "increments", None])
async def test_nothing_is_trimmed_when_an_own_topic_was_replaced(bench, caplog, old):
    """The snapshots are gone with the old topic: the changes in the increments topic are all that is left. In a
    replaced increments topic the offsets are of other records."""
    last = await snapshots(bench, 2, retention={"snapshots_kept": 3})
    topic = getattr(bench, old) if old else ""
    context = await bench.context(retention={"snapshots_kept": 2})
    ids = {name: "old" if name == topic else each for name, each in last.topic_ids.items()}
    await trimmed(context, msgspec.structs.replace(last, topic_ids=ids))
    assert (starts(bench) == (0, 0)) is bool(old)
    told = f"not trimmed: topic {topic} was deleted and created again"
    assert (told in caplog.text) is bool(old)


async def test_a_trim_that_fails_is_only_a_warning(bench, caplog, monkeypatch):
    """Processing continues; the log says that the next snapshot tries again."""

    async def no_leader(*_):
        raise Unreachable("no leader")

    monkeypatch.setattr(SimCluster, "delete_records", no_leader)
    await snapshots(bench, 3, retention={"snapshots_kept": 2})
    assert "the next snapshot tries again" in caplog.text
    assert starts(bench) == (0, 0)
    await bench.restored()

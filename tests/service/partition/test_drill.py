"""Drills: a restore beside a LIVE partition, what it says, and when it is given up."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.control.restore_plan import Rates
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.partition import drill as module
from snapreplay.service.ports import Bounds
from snapreplay.service.recovery.examine import EXAMINATIONS_MAX, Examiner
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import Paused
from snapreplay.state.digest import Digest
from tests.simulation.cluster import SimCluster
from tests.simulation.reader import SimReader
from tests.support.accepting import continues_by_a_witness, overtaken
from tests.support.stage import until
from tests.support.tampering import flip, with_fields


def asked(one: Any) -> list[Any]:
    """Ask for a drill; what is reported of it."""
    told: list[Any] = []
    assert one.runner.request_drill(lambda *news: told.append(news))
    return told


async def answer(told: list[Any]) -> Any:
    await until(lambda: told, "the verdict")
    assert len(told) == 1
    return told[0]


async def mended(one: Any) -> None:
    """Wait for a snapshot of a batch behind all that the drill has read."""
    await one.pointed("fallback")
    await until(lambda: not one.live.snapshots.unpointed.fell_back, "a snapshot behind the damage")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """No reader of whole snapshots comes before it is set."""
    opened, reader = asyncio.Event(), SimCluster.reader

    async def gated(self: Any, *given: Any, **named: Any) -> Any:
        if named.get("large"):
            await opened.wait()
        return await reader(self, *given, **named)

    monkeypatch.setattr(SimCluster, "reader", gated)
    return opened


@pytest.mark.parametrize("changes", [True, False], ids=["changes", "replay"])
async def test_a_drill_comes_to_the_committed_state_and_leaves_no_trace(bench, changes):
    """By the newest snapshot and what came since. Nothing is written, and the owner stays the owner. Its prediction is
    of what it did."""
    await bench.prepare(changelog={"enabled": changes})
    async with bench.live(records=30) as one:
        newest = await one.snapshot()
        await one.feed(20)
        ends = [bench.log(topic).end for topic in (bench.increments, bench.snapshots, bench.output)]
        one.context.rates.known = rates = Rates()
        state, snapshot_id, said = await answer(asked(one))
        assert (state, snapshot_id) == ("succeeded", newest), said
        found = one.status.drill
        assert (found.state, found.batch, found.entries) == ("succeeded", one.status.batch, 20)
        assert (found.digest, found.mode) == (one.status.digest, "changes" if changes else "replay")
        per_second = rates.changes_per_second if changes else rates.replay_per_second
        spent = 0.2 + one.status.snapshot.size_bytes / rates.load_bytes_per_second + 20 / per_second
        assert found.predicted_seconds == pytest.approx(spent)
        assert found.seconds >= one.context.rates.owning_seconds
        assert found.finished_at >= found.started_at
        assert [bench.log(topic).end for topic in (bench.increments, bench.snapshots, bench.output)] == ends
        assert one.phases.count("live")
        assert one.status.phase == "live"
        await bench.assert_exactly_once(one)


async def test_a_state_that_differs_is_reported_and_the_partition_continues(bench, caplog):
    """The log says another digest than the state has: an ERROR, and a snapshot of the state that is processed with."""
    async with bench.live(records=30) as one:
        bench.tamper(bench.increments, RecordKind.INCREMENT, with_fields(digest=Digest(20, 1, 2)))
        state, _, said = await answer(asked(one))
        assert state == "failed"
        assert "digest" in said
        assert one.status.drill.state == "failed"
        assert f"partition 0: the drill failed: {said}" in "".join(caplog.messages)
        await mended(one)
        assert (await answer(asked(one)))[0] == "succeeded"
        await bench.assert_exactly_once(one)


@pytest.mark.parametrize(
    ("part", "kind", "why"),
    [("snapshots", RecordKind.CHUNK, "snapshot {}: "), ("increments", RecordKind.CHANGES, "cannot advance by changes")],
)
async def test_damage_that_a_recovery_would_get_around_is_reported(bench, part, kind, why):
    """An older snapshot or the other mode would lead to the same state. That is no reason to wait for the crash."""
    async with bench.live(records=30) as one:
        newest = await one.snapshot()
        await one.feed(10)
        bench.tamper(getattr(bench, part), kind, flip)
        state, _, said = await answer(asked(one))
        assert state == "failed"
        assert "a recovery would fall back" in said
        assert why.format(newest) in said or part == "increments"
        await mended(one)
        assert (await answer(asked(one)))[0] == "succeeded"


async def test_there_is_one_at_a_time(bench, gate):
    """A second request meanwhile is refused."""
    async with bench.live(records=10) as one:
        gate.set()
        await one.snapshot()
        gate.clear()
        first, second = asked(one), asked(one)
        await until(lambda: one.status.drill and one.context.spare_state.locked(), "the drill")
        assert one.status.drill.state == "running"
        gate.set()
        assert await answer(second) == ("failed", None, "a drill of the partition is in progress")
        assert (await answer(first))[0] == "succeeded"
        assert not one.context.spare_state.locked()


@pytest.mark.parametrize("end", ["paused", "released"])
async def test_a_drill_is_given_up_with_its_partition(bench, gate, end):
    """It leaves nothing behind: no copy, no reader, no waiting client."""
    async with bench.live(records=10) as one:
        gate.set()
        await one.snapshot()
        gate.clear()
        told = asked(one)
        await until(one.context.spare_state.locked, "the drill")
        if end == "paused":
            one.runner.request_pause(Paused(1, "why"), lambda *_: None)
        else:
            await one.end()
        state, _, said = await answer(told)
        assert (state, one.status.drill.state) == ("failed", "given_up")
        assert said == {"paused": "the partition was paused", "released": "the partition left LIVE"}[end]
        assert not one.context.spare_state.locked()
        if end == "paused":
            await until(lambda: one.status.paused_since, "the pause")
            assert (await answer(asked(one)))[2] == "the partition is paused"


async def test_a_drill_that_is_cancelled_is_given_up(bench, gate):
    """A cancelled request gets no further answer."""
    await bench.prepare()
    async with bench.live() as one:
        gate.set()
        await one.feed(30)
        await one.snapshot()
        gate.clear()
        told: list[Any] = []
        one.runner.request_drill(done := lambda *news: told.append(news))
        await until(lambda: one.status.drill, "its begin")
        one.runner.withdraw(done)
        await until(lambda: one.status.drill.state != "running", "its end")
        assert (one.status.drill.state, one.status.drill.detail) == ("given_up", "it was cancelled")
        assert told == []


async def test_a_drill_that_is_given_up_before_its_first_step_is_answered(bench):
    """Although another one has begun before its end was noticed."""
    async with bench.live(records=10) as one:
        first = asked(one)
        one.runner.request_pause(Paused(1, "why"), lambda *_: None)
        await asyncio.sleep(0)  # its task is done, and its callbacks have not run yet
        second = asked(one)
        assert await answer(first) == ("failed", None, "the partition was paused")
        assert (await answer(second))[0] == "failed"


async def test_a_drill_that_its_owner_has_overtaken_proves_nothing(bench, gate, caplog):
    """The snapshot that it reads is trimmed behind newer ones: that is no damage, and no ERROR."""
    await bench.prepare(retention={"snapshots_kept": 2})
    gate.set()
    async with bench.live(records=10) as one:
        await one.snapshot()
        gate.clear()
        told = asked(one)
        await until(one.context.spare_state.locked, "the drill")
        await asyncio.sleep(1)
        for _ in range(3):
            await one.feed(10)
            await one.snapshot()
        await until(lambda: bench.log(bench.snapshots).start, "a trim", 200)
        gate.set()
        state, _, said = await answer(told)
        assert (state, one.status.drill.state) == ("failed", "given_up"), said
        assert "the log was trimmed behind a new snapshot meanwhile" in said
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def continues_by_a_manifest(bench, one):
    await one.feed(10)
    await one.snapshot()


@pytest.mark.parametrize("continues", [continues_by_a_manifest, continues_by_a_witness])
@pytest.mark.parametrize("times", [2, EXAMINATIONS_MAX])
async def test_an_owner_that_continues_has_not_lost_the_end_of_its_log(bench, monkeypatch, caplog, continues, times):
    """What it commits after the drill has asked for the end is no damage. The drill looks again, but not for ever."""
    async with bench.live(records=10) as one:
        left = overtaken(monkeypatch, times, lambda: continues(bench, one))
        state, _, said = await answer(asked(one))
        assert not left
        assert one.status.drill.state == ("succeeded" if times == 2 else "given_up"), said
        assert (state == "succeeded") == (times == 2)
        await bench.assert_exactly_once(one)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


@pytest.mark.parametrize(("times", "ended"), [(3, "succeeded"), (1000, "failed")])
async def test_a_commit_may_be_read_a_moment_after_its_answer(bench, monkeypatch, times, ended):
    """Its markers are written later. A log that still ends there has lost a batch that was committed."""
    async with bench.live(records=10) as one:
        before = bench.log(bench.increments).end
        await one.feed(10)
        left, real = [None] * times, SimReader.bounds

        async def late(self: Any, partition: Any) -> Bounds:
            bounds = await real(self, partition)
            if not left or partition.topic != bench.increments:
                return bounds
            left.pop()
            return Bounds(bounds.start_offset, before)

        monkeypatch.setattr(SimReader, "bounds", late)
        batch = one.status.batch
        _, _, said = await answer(asked(one))
        assert one.status.drill.state == ended, said
        if ended == "failed":
            assert f"ends before batch {batch}, which was committed" in said
        left.clear()  # an owner that ends looks, too, and would keep a state that the log does not seem to have


async def test_a_copy_that_is_given_up_is_freed_in_steps_without_delays(bench, monkeypatch):
    """A million entries at once take a tenth of a second of all partitions. The partition is handed over before."""
    freed, stores, restored, real = asyncio.Event(), [], asyncio.Event(), Examiner.examine_beside_owner

    async def examined(self: Any, *given: Any) -> Any:
        await real(self, *given)
        stores.append(self.store)
        restored.set()
        await asyncio.Event().wait()

    async def gated(steps: Any) -> None:
        await freed.wait()
        await run_cooperatively(steps)

    monkeypatch.setattr(Examiner, "examine_beside_owner", examined)
    monkeypatch.setattr(module, "run_cooperatively", gated)
    async with bench.live(records=10) as one:
        told = asked(one)
        await restored.wait()
        await one.end()
        assert (await answer(told))[2] == "the partition left LIVE"
        assert stores[0].digest.count
        freed.set()
        await until(lambda: not stores[0].digest.count, "an empty store")


async def test_a_cluster_that_cannot_be_asked_proves_nothing(bench, monkeypatch):
    """The drill is given up; the next one may succeed."""
    async with bench.live(records=10) as one:

        async def none(self: Any, *given: Any, **named: Any) -> Any:
            raise Unreachable("no broker for drills")

        with monkeypatch.context() as patched:
            patched.setattr(SimCluster, "reader", none)
            assert (await answer(asked(one)))[2] == "no broker for drills"
            assert one.status.drill.state == "given_up"
        assert (await answer(asked(one)))[0] == "succeeded"


async def test_no_drill_takes_memory_that_is_not_there(bench, monkeypatch):
    """A second copy would end the process, and the first one with it."""
    async with bench.live(records=10) as one:
        monkeypatch.setattr(module, "available_bytes", lambda _: 10)
        state, _, said = await answer(asked(one))
        assert state == "failed"
        assert "and 10 are free" in said


async def test_drills_come_on_schedule(bench):
    """One in each period, without anybody who asks."""
    await bench.prepare(restore={"drill_every_seconds": 100})
    async with bench.live(records=10) as one:
        ended = set()

        def another():
            if one.status.drill is not None and one.status.drill.state == "succeeded":
                ended.add(one.status.drill.started_at)
            return len(ended) == 3

        began = asyncio.get_running_loop().time()
        await until(another, "three drills", 500)
        assert 200 <= asyncio.get_running_loop().time() - began <= 350

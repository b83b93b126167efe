"""The watch itself; what it sees and does about it is in tests/attacks/test_b4_retention.py."""

import asyncio
import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from snapreplay.service.clock import time_of, wall_time
from snapreplay.service.control.status import BlockedTopic, OpenTransactionStatus, RecoveryStatus, SnapshotUsed
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.live import recoverability_monitor as module
from snapreplay.service.live.fetcher import Fetcher
from snapreplay.service.live.recoverability_monitor import WATCH_SECONDS, HeldBack
from snapreplay.service.ports import Bounds, TopicPartition
from snapreplay.service.runtime.rates import FORECAST_SECONDS_MAX, MeasuredRates, Work, Worked
from tests.simulation.cluster import SimCluster
from tests.support import inside
from tests.support.fake_control import NOW
from tests.support.owner import unreachable
from tests.support.stage import until


async def test_it_is_looked_at_once_a_minute(bench, monkeypatch):
    """The first look comes within a minute; batches make none. A `recoverable` is not read after its end."""
    made, reader = [], SimCluster.reader

    async def counted(self, **options):
        made.append(asyncio.get_running_loop().time())
        return await reader(self, **options)

    async with bench.live() as one:
        monkeypatch.setattr(SimCluster, "reader", counted)
        for _ in range(5):
            await one.feed(10)
        assert made == []
        assert one.status.recoverable is None
        await asyncio.sleep(module.WATCH_SECONDS)
        assert one.status.recoverable is True
        looks = len(made)
        await asyncio.sleep(module.WATCH_SECONDS)
        assert len(made) == 2 * looks
    assert one.status.recoverable is None
    watches = [t for t in asyncio.all_tasks() if "RecoverabilityMonitor" in repr(t.get_coro())]
    assert watches == []


async def test_a_lag_is_shown_although_nothing_is_fetched(bench, monkeypatch):
    """While handlers are busy with what was fetched long ago, each look asks where the inputs end."""
    busy = []

    async def nothing(*_):
        busy.append(1)
        await asyncio.sleep(1)
        return ()

    async with bench.live(records=10) as one:
        monkeypatch.setattr(Fetcher, "next_batch", nothing)
        await until(lambda: busy, "the end of the last fetch")
        await bench.feed(30)
        await until(lambda: one.status.inputs[0].lag == 30, "the lag", 2 * module.WATCH_SECONDS)
        assert one.status.inputs[0].lag_to_high_watermark == 30


async def test_a_look_that_fails_is_only_a_warning(bench, monkeypatch, caplog):
    """Processing continues, what is known stays, and the next look is tried."""
    async with bench.live() as one:
        await until(lambda: one.status.recoverable, "looked at", module.WATCH_SECONDS)
        with monkeypatch.context() as down:
            down.setattr(SimCluster, "reader", unreachable)
            await asyncio.sleep(2 * module.WATCH_SECONDS)
        assert caplog.text.count("cannot check whether it is recoverable: no broker") == 2
        assert one.status.recoverable is True
        await bench.feed(10)
        await bench.assert_exactly_once(one)


LOG = TopicPartition("payments", 3)


class Cluster:
    """Gives the set answer, and counts the questions."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked = 0

    async def open_transaction(self, partition: TopicPartition) -> Any:
        assert partition == LOG
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def held_back(*answers: Any) -> tuple[HeldBack, Cluster]:
    cluster = Cluster()
    cluster.answers = [*answers]
    context: Any = SimpleNamespace(cluster=cluster)
    return HeldBack(context), cluster


async def named(watch, found):
    """Return what a look finds, and which transactions these are."""
    watch.look(found)
    return await watch.named()


def bounds(stable: int, end: int) -> dict[TopicPartition, tuple[Bounds, Bounds]]:
    return {LOG: (Bounds(0, stable), Bounds(0, end))}


async def test_a_transaction_is_named_at_the_second_look_and_asked_for_once() -> None:
    """Most end before. As long as the stable offset stands it is the same one; another one is asked for again."""
    first = OpenTransaction(9, 1, 5, "writer", 1_000, 60_000, 2_000)
    watch, cluster = held_back(first, None)
    assert await named(watch, bounds(5, 9)) == ()
    shown = OpenTransactionStatus(9, 1, 5, "writer", time_of(1_000), 60.0, time_of(2_000))
    assert await named(watch, bounds(5, 9)) == (BlockedTopic("payments", 5, 4, shown),)
    assert await named(watch, bounds(5, 11)) == (BlockedTopic("payments", 5, 6, shown),)
    assert cluster.asked == 1
    assert await named(watch, bounds(11, 12)) == ()
    assert await named(watch, bounds(11, 12)) == (BlockedTopic("payments", 11, 1),)
    assert await named(watch, bounds(12, 12)) == ()
    assert cluster.asked == 2


async def test_who_cannot_be_asked_is_asked_again(caplog) -> None:
    """The log is held back all the same, and a hanging transaction has neither an id nor a start."""
    caplog.set_level(logging.INFO)
    hanging = OpenTransaction(9, 1, 5, last_record_at_ms=-1)
    watch, _ = held_back(Unreachable("no broker"), hanging)
    await named(watch, bounds(5, 9))
    assert await named(watch, bounds(5, 9)) == (BlockedTopic("payments", 5, 4),)
    assert "cannot ask which transaction holds back payments-3: no broker" in caplog.text
    (blocked,) = await named(watch, bounds(5, 9))
    assert blocked.held_by == OpenTransactionStatus(9, 1, 5)


async def looked(one):
    """Wait for a look that begins now; return its plan."""
    before = one.status.restore_plan
    await until(lambda: one.status.restore_plan not in (None, before), "a plan", 2 * WATCH_SECONDS)
    await asyncio.sleep(WATCH_SECONDS)
    return one.status.restore_plan


@pytest.mark.parametrize("changes", [True, False], ids=["changes", "replay"])
async def test_the_plan_is_what_the_next_recovery_does(bench, changes):
    """The genesis before the first snapshot; then the newest snapshot and what came since. The next owner
    restores from exactly that."""
    await bench.prepare(changelog={"enabled": changes}, retention={"snapshots_kept": 2})
    await bench.feed(50)
    async with bench.live() as one:
        await one.position(50)
        plan = await looked(one)
        assert (plan.mode, plan.first.snapshot_id) == ("changes" if changes else "replay", None)
        assert (plan.first.batches, plan.first.records) == (one.status.batch, 50)
        await one.snapshot()
        await one.feed(20)
        newest = await one.snapshot()
        await one.feed(7)
        plan = await looked(one)
        assert (plan.first.snapshot_id, plan.first.records) == (newest, 7)
        rates = plan.rates
        per_second = rates.changes_per_second if changes else rates.replay_per_second
        spent = rates.before_loading_seconds + plan.first.size_bytes / rates.load_bytes_per_second + 7 / per_second
        assert plan.first.predicted_seconds == pytest.approx(spent)
    assert one.status.restore_plan is None
    async with bench.live() as two:
        used = two.status.restore
        assert used.snapshot.snapshot_id == newest
        assert (used.snapshot.size_bytes, used.snapshot.entries) == (plan.first.size_bytes, plan.first.entries)
        assert (used.records_advanced, used.mode) == (plan.first.records, plan.mode)


async def test_an_owner_that_has_read_no_snapshot_learns_when_the_newest_was_written(bench):
    """One that had a warm copy has read none: to its operator there would seem to be none."""
    await bench.prepare()
    await bench.feed(10)
    async with bench.live() as one:
        await one.position(10)
        await one.snapshot()
        pointed_at = one.status.last_pointed_snapshot_at
        inside.reporter(one.runner).note(last_pointed_snapshot_at=None)
        await looked(one)
        assert abs(one.status.last_pointed_snapshot_at - pointed_at) < timedelta(minutes=1)


async def test_a_snapshot_that_is_gone_is_not_planned_with(bench):
    """The plan does not begin with it."""
    await bench.prepare()
    await bench.feed(10)
    async with bench.live() as one:
        await one.position(10)
        first = await one.snapshot()
        await looked(one)
        bench.trim(bench.snapshots, bench.log(bench.snapshots).end)
        plan = await looked(one)
        assert plan.first.snapshot_id != first


def test_a_rate_is_measured_by_a_restore_that_is_large_enough():
    """And named; what was too small, from memory or tried twice leaves the constants. A tenth counts if it took long.
    What is learnt from was predicted by what was known before. Only work counts, however long the phases were."""
    used = SnapshotUsed("a", 4, 9, 1000, 4_000_000, NOW)
    spent = {"fencing": 0.1, "claiming": 0.1, "locating": 0.3, "loading": 80.0, "advancing": 90.0}
    whole = RecoveryStatus(1, mode="replay", snapshot=used, seconds_per_phase=spent, records_advanced=40_000)
    rates: Any = MeasuredRates()
    rates.learn(RecoveryStatus(1, warm="kept", seconds_per_phase=spent), worked(2.0, 4.0))
    rates.learn(RecoveryStatus(2, seconds_per_phase=spent), worked(2.0, 4.0))
    assert rates.known.measured == ()
    rates.learn(msgspec.structs.replace(whole, snapshot=None, records_advanced=9_999), worked(0.0, 0.2))
    rates.learn(msgspec.structs.replace(whole, snapshot=None, records_advanced=999), worked(0.0, 4.0))
    assert rates.known.measured == ("before_loading_seconds",)
    assert rates.predicted_seconds(whole) == pytest.approx(0.5 + 4 / 20 + 40_000 / 20_000)
    assert rates.predicted_seconds(RecoveryStatus(1, warm="kept", seconds_per_phase=spent)) is None
    rates.learn(whole, worked(2.0, 4.0, 0.7))
    assert rates.known.measured == ("before_loading_seconds", "load_bytes_per_second", "replay_per_second")
    assert rates.known.before_loading_seconds == pytest.approx(0.5 + 0.7)
    assert rates.owning_seconds == pytest.approx(0.5)
    assert (rates.known.load_bytes_per_second, rates.known.replay_per_second) == (2_000_000, 10_000)
    rates.learn(msgspec.structs.replace(whole, mode="changes", snapshot=None, records_advanced=1000), worked(0.0, 4.0))
    assert rates.known.changes_per_second == 250


def test_a_forecast_counts_what_is_over_before_loading_begins():
    """The time of fencing, claiming and locating has passed when it is made."""
    rates: Any = MeasuredRates()
    before = wall_time()
    forecast = rates.forecast("replay", 20_000_000, 40_000)
    assert forecast.seconds == pytest.approx(0.2 + 1 + 2)
    left = forecast.live_at - before
    assert timedelta(seconds=3) <= left <= timedelta(seconds=3) + (wall_time() - before)


@pytest.mark.parametrize(("size", "seconds"), [(2**63, FORECAST_SECONDS_MAX), (-(2**63), 0)])
def test_a_forecast_by_a_forged_manifest_is_a_date(size, seconds):
    """Its sizes and positions may be any numbers; that the state is right is proven later."""
    assert MeasuredRates().forecast("replay", size, 0).seconds == seconds


def worked(*seconds):
    """Return the work of a restore: loading, advancing and finishing took so long."""
    made = Worked()
    made.seconds.update(zip(Work, seconds, strict=False))
    return made

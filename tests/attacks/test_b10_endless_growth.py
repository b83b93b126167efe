"""Attack B10: nothing is trimmed unless somebody runs a job, and idle partitions write the same state again and
again, until the brokers' disks are full."""

import asyncio

import pytest

from snapreplay.service.core.snapshot_policy import SinceSnapshot, SnapshotPolicy, snapshot_due
from tests.support import apps
from tests.support.kafka import until_async
from tests.support.stage import Stage, processed, snapshot, until

KEPT = 2


def test_b10_nothing_is_due_when_nothing_changed():
    """However old the newest snapshot is, by whatever rule."""
    policy = SnapshotPolicy(1, 1, 0.5)
    assert all(
        snapshot_due(policy, SinceSnapshot(0, elapsed_ms), "app", partition) is None
        for elapsed_ms in (0, 1, 10**12)
        for partition in range(8)
    )


async def retained(here: Stage) -> tuple[int, int]:
    """Offsets between start and end of (T-ZengLiang, T-QuanLiang)."""
    context = await here.context()
    reader = await here.cluster.reader()
    try:
        bounds = [await reader.bounds(log) for log in (context.increments, context.snapshots)]
    finally:
        await reader.close()
    return bounds[0].end_offset - bounds[0].start_offset, bounds[1].end_offset - bounds[
        1
    ].start_offset


@pytest.mark.kafka
async def test_b10_the_owner_keeps_both_topics_small_by_itself(stage, unique):
    """After many snapshots there is no more in the topics than after the first few; the state is whole."""
    here = await stage(apps.ledger(unique("b10")), retention={"snapshots_kept": KEPT})
    sizes = []
    async with here.running() as service:
        for _ in range(8):
            await here.feed(10)
            await processed(service, {0: here.sent})
            await snapshot(service)
            sizes.append(await retained(here))
        most = [max(each) for each in zip(*sizes[:3], strict=True)]
        await until_async(
            lambda: retained(here), lambda now: all(a <= b for a, b in zip(now, most, strict=True))
        )
    await here.restored()


@pytest.mark.kafka
async def test_b10_an_idle_partition_writes_nothing(stage, unique):
    """A snapshot each 50 ms while there is input; none, and no increment, while there is none."""
    here = await stage(apps.ledger(unique("idle")), snapshot={"every_seconds": 0.05})
    async with here.running() as service:
        await here.feed(10)
        await until(
            lambda: [s.state for s in service.control.snapshots()][:1] == ["pointed"], "a snapshot"
        )
        await until(lambda: service.restore_status()[0].records_total == 10, "the input")
        await until(
            lambda: not service._supervisor.runners[0]._live.snapshots.changed, "the last one"
        )
        idle = await until_async(lambda: retained(here), _same())
        await asyncio.sleep(0.5)  # ten intervals: what must not happen has no condition
        assert await retained(here) == idle


def _same():
    """Twice in a row the same answer: nothing is under way any more."""
    seen = [None]

    def holds(found):
        before, seen[0] = seen[0], found
        return before == found

    return holds

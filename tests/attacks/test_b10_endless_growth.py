"""Attack B10: nothing is trimmed unless somebody runs a job, and idle partitions write the same state again and
again, until the brokers' disks are full."""

import pytest

from tests.support import apps
from tests.support.kafka import until_async
from tests.support.stage import Stage, processed, snapshot

KEPT = 2


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

"""A full snapshot whose topic is replaced before its first step."""

import asyncio

from snapreplay.service.live.snapshot_scheduler import SnapshotScheduler
from tests.service.live.test_snapshot_scheduler import asked, fed, replaced
from tests.support.in_memory import virtual


@virtual
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
    async with bench.live() as one:
        await fed(bench, one, 10)
        told = asked(one)
        await one.pointed("retention")
        assert marked == ["trigger", "retention"]
        assert told[0][:2] == ("succeeded", one.status.snapshot.snapshot_id)

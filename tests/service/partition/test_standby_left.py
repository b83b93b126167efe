"""A copy begins with what an owner in its process has left."""

import asyncio

import msgspec

from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.warm_copy import WarmCopy
from snapreplay.service.recovery.executor import RecoveryExecutor
from tests.service.partition.test_standby import Copied, followed
from tests.support.in_memory import virtual
from tests.support.stage import until


@virtual
async def test_what_an_owner_left_is_kept_although_the_log_has_lost_its_end(bench):
    """It may be the only copy of that batch. It is looked at again and again."""
    one, copied = await followed(bench)
    (left,) = await copied.handed_over()
    await one.end()
    records = (await bench.read(bench.increments))[0]
    bench.recreate(bench.increments, records[:-3])
    again = Copied(await bench.context("two"), left)
    await until(lambda: [each.state for each in again.told] == ["ahead"] * 3, "three looks")
    ((store, copy),) = await again.handed_over()
    assert store is left[0]
    assert copy is left[1]
    assert store.digest == copy.last.increment.digest


@virtual
async def test_what_an_owner_left_is_not_warm_while_the_snapshot_is_loaded_in_its_place(bench, monkeypatch):
    """Else the partition would move here, and be restored first."""
    _, copied = await followed(bench)
    ((store, copy),) = await copied.handed_over()
    forged = msgspec.structs.replace(copy.last.increment, written_at_ms=1)
    load, begun, goes_on = RecoveryExecutor.load, asyncio.Event(), asyncio.Event()

    async def slow(self, effect):
        begun.set()
        await goes_on.wait()
        return await load(self, effect)

    monkeypatch.setattr(RecoveryExecutor, "load", slow)
    left = WarmCopy(FoundIncrement(forged, copy.last.offset))
    again = Copied(await bench.context("two"), (store, left))
    await begun.wait()
    assert not again.standby.is_warm
    goes_on.set()
    await again.warm(copy.last.increment.batch)
    assert again.standby.is_warm
    await again.standby.end()

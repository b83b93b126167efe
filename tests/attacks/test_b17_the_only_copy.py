"""B17: T-ZengLiang, T-QuanLiang or both are deleted while their owner runs. Then the state in its memory is the only
copy there is: it is held, and written as soon as there is a topic to write it to."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.core.custody import StateUnsaved
from snapreplay.service.decisions.init import init_app
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps
from tests.support.accepting import accepted
from tests.support.deadlines import scaled
from tests.support.stage import Stage, phase, until
from tests.support.tampering import configure, delete

pytestmark = pytest.mark.whole


async def ensure(here: Stage) -> list[str]:
    """Ensure the topics as `snapreplay topics ensure` does; a deletion may not be done yet."""
    return await ensure_topics(here.app, here.settings(), here.cluster)


async def feeding(here: Stage, stop: asyncio.Event) -> None:
    """A payment or two at a time, for as long as it is not told to stop."""
    while not stop.is_set():
        await here.feed(2)


@pytest.fixture
async def busy():
    """Feeds a stage until the test is over, or `halt` is called."""
    stop, tasks = asyncio.Event(), list[Any]()

    async def halt():
        stop.set()
        await asyncio.gather(*tasks)

    def begin(here):
        tasks.append(asyncio.get_running_loop().create_task(feeding(here, stop)))
        return halt

    yield begin
    await halt()


SHAPES = {"changes": (apps.ledger, {}), "lean": (apps.ledger, {"changelog": {"enabled": False}})}


@pytest.mark.parametrize(("shape", "at_work"), [("changes", True), ("lean", False)])
async def test_the_increments_are_deleted_and_created_again(stage, unique, busy, shape, at_work):
    """The owner says it within seconds, begins a new chain with what it has in memory, and continues; a later process
    has exactly the state, and every output was written once."""
    make, tables = SHAPES[shape]
    here = await stage(make(unique("gone")), **tables)
    async with here.running(records=100) as service:
        halt = busy(here) if at_work else None
        await asyncio.to_thread(delete, here.bootstrap_servers, here.increments)
        await until(lambda: service.restore_status()[0].error.kind == "IncrementsMissing", "noticed")
        await ensure(here)
        await phase(service, "live")
        if halt:
            await halt()
        await here.feed(10)
        await here.assert_exactly_once(service)
    restore = await here.restored(**tables)
    assert restore.snapshot is not None


async def test_both_topics_are_deleted_and_created_again(stage, unique, busy):
    """The command creates both, and the owner fills them; `init` finds nothing to do."""
    here = await stage(apps.ledger(unique("both")), 2)
    async with here.running(records=100) as service:
        halt = busy(here)
        both = (here.increments, here.snapshots)
        await asyncio.to_thread(delete, here.bootstrap_servers, *both)
        await until(lambda: all(s.error for s in service.restore_status()), "noticed")
        await ensure(here)
        for number in range(2):
            await phase(service, "live", number)
        await halt()
        await here.assert_exactly_once(service)
        lines = await init_app(here.app, here.settings(), here.cluster)
        assert all("already initialised" in line for line in lines)
    await here.restored()


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}


async def test_the_increments_are_compacted_away(stage, unique, monkeypatch):
    """Our records have no keys, so a compacted topic keeps and takes none. The state is reported as the only copy, and
    is written aside. A stop says so; the next start says how the records went, and its hint leads to that state."""
    monkeypatch.setattr("snapreplay.service.supervisor.WATCH_SECONDS", 1.0)
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 2.0)
    here = await stage(apps.ledger(unique("compact")), timeouts={"shutdown_ms": 3000})
    service = here.service()
    await service.start()
    await service.wait_live(scaled(30))
    await here.process(service, 50)
    for name, value in COMPACTED.items():
        await asyncio.to_thread(configure, here.bootstrap_servers, here.increments, name, value)
    await here.feed(10)
    status = await phase(service, "failed")
    assert "cleanup.policy=compact" in status.error.message

    def is_reported():
        status = service.restore_status()[0]
        return status.recoverable is False and status.snapshot.snapshot_id in status.unrecoverable_reason

    await until(is_reported, "the cleaner, and a snapshot of the state", 120.0)
    with pytest.raises(StateUnsaved, match=service.restore_status()[0].snapshot.snapshot_id):
        await service.stop()
    await asyncio.to_thread(configure, here.bootstrap_servers, here.increments, "cleanup.policy", "delete")
    failed = await here.failure()
    assert "they were compacted away (cleanup.policy=compact)" in failed.error.message
    await accepted(here, failed.error.hint)
    async with here.running() as service:
        await here.assert_exactly_once(service)

"""B17: T-ZengLiang, T-QuanLiang or both are deleted while their owner runs. Then the state in its memory is the only
copy there is: it is held, and written as soon as there is a topic to write it to."""

import asyncio
import signal
from typing import Any

import pytest

from snapreplay.service.core.custody import StateUnsaved
from snapreplay.service.decisions.init import init_app
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps, inside, reference
from tests.support.accepting import accepted
from tests.support.deadlines import scaled
from tests.support.entries import read_entry
from tests.support.stage import Stage, phase, processed, snapshot, until
from tests.support.tampering import configure, delete, log_start, recreate, trim_to_end

pytestmark = pytest.mark.kafka


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


@pytest.mark.parametrize(
    ("shape", "at_work"), [("changes", True), pytest.param("lean", False, marks=pytest.mark.whole)]
)
async def test_the_increments_are_deleted_and_created_again(stage, unique, busy, shape, at_work):
    """The owner says it within seconds, begins the chain anew with what it has in memory, and goes on; a later process
    has exactly the state, and every output was written once."""
    make, tables = SHAPES[shape]
    here = await stage(make(unique("gone")), **tables)
    async with here.running() as service:
        await here.feed(100)
        await processed(service, {0: 100})
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


async def test_a_state_that_is_no_map_gets_the_batch_in_doubt_with_it(stage, unique, busy):
    """It cannot undo the batch that was being committed when the topic went: its outputs are committed with the state.
    Each record has one output, each output one record."""
    here = await stage(apps.tape(unique("tape")))
    async with here.running() as service:
        await here.feed(100)
        await processed(service, {0: 100})
        halt = busy(here)
        await until(lambda: service.restore_status()[0].batch > 3, "at work")
        await asyncio.to_thread(delete, here.bootstrap_servers, here.increments)
        await until(lambda: service.restore_status()[0].error, "noticed")
        await ensure(here)
        await phase(service, "live")
        await halt()
        await here.all_processed(service)
        tape = inside.runner(service).store.view.ids
    await same_tape(here, tape)
    async with here.running() as service:
        restored = inside.runner(service).store.view.ids
        assert restored == tape


async def same_tape(here, tape):
    """The state, and the outputs in their order, are those of every input record once."""
    (inputs,), (outputs,) = (await here.read(here.input), await here.read(here.output))
    expected = [f"{here.input}-0-{record.offset}" for record in inputs]
    assert tape == expected
    assert reference.ids(outputs) == expected
    assert [value["n"] for _, value in reference.decoded(outputs)] == list(range(1, len(expected) + 1))


@pytest.mark.whole
async def test_the_snapshots_are_deleted_and_created_again(stage, unique, busy):
    """Processing goes on; status says what is missing; a snapshot asked for fails at once with the reason. When the
    topic is there again it gets a snapshot at once, and nothing points into the old one any more."""
    here = await stage(apps.ledger(unique("whole")), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(100)
        await processed(service, {0: 100})
        old = await snapshot(service)
        halt = busy(here)
        await asyncio.to_thread(delete, here.bootstrap_servers, here.snapshots)
        await until(lambda: service.restore_status()[0].recoverable is False, "noticed")
        status = service.restore_status()[0]
        assert f"topic {here.snapshots} does not exist any more" in status.unrecoverable_reason
        assert "snapreplay topics ensure" in status.unrecoverable_reason
        await here.feed(10)
        await here.all_processed(service)
        triggered = await service.trigger_snapshot([0])
        assert triggered.parts[0].state == "failed"
        assert "does not exist any more" in triggered.parts[0].detail
        assert await ensure(here) == [f"ok {here.increments}", f"created {here.snapshots} (1 partition)"]
        await until(lambda: service.restore_status()[0].recoverable, "recoverable again")
        assert service.restore_status()[0].phase == "live"
        await halt()
        await here.all_processed(service)
        (log,) = await here.read(here.increments)
        pointers = read_entry(log[-1].value).pointers
        assert pointers
        assert old not in [pointer.snapshot_id for pointer in pointers]
    restore = await here.restored(changelog={"enabled": False})
    assert restore.snapshot.snapshot_id == pointers[0].snapshot_id
    assert restore.fallback_from is None


@pytest.mark.whole
async def test_both_topics_are_deleted_and_created_again(stage, unique, busy):
    """The command creates both, and the owner fills them; `init` finds nothing to do."""
    here = await stage(apps.ledger(unique("both")), 2)
    async with here.running() as service:
        await here.feed(100)
        await here.all_processed(service)
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


@pytest.mark.whole
async def test_a_group_that_subscribes_to_a_topic_that_is_gone_takes_nothing_away(broker, stage, unique):
    """The owner keeps the partition, and holds what it has."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers, "metadata.max.age.ms": 1000}
    here = await stage(apps.ledger(unique("group")), kafka=kafka)
    async with here.running() as service:
        await here.feed(50)
        await processed(service, {0: 50})
        await asyncio.to_thread(delete, here.bootstrap_servers, here.increments)
        await until(lambda: service.restore_status()[0].error, "noticed")
        assert not service.control.ready()
        membership = inside.membership(service)
        generation = membership.generation
        membership.rejoin()
        await until(lambda: membership.generation > generation, "the group assigns without the topic")
        assert membership.assignment == {0}
        await ensure(here)
        await service.wait_live(scaled(30))
        await here.feed(10)
        await here.assert_exactly_once(service)


@pytest.mark.parametrize("created", [True, pytest.param(False, marks=pytest.mark.whole)])
async def test_a_stop_waits_for_the_topic_as_long_as_it_may(stage, unique, created):
    """Then what was in memory is in the log, and the stop is a good one. When the time is over it says what was lost,
    by partition, and the exit code is not 0."""
    here = await stage(apps.ledger(unique("stop")), timeouts={} if created else {"shutdown_ms": 3000})
    service = here.service()
    await service.start()
    await service.wait_live(scaled(30))
    await here.feed(50)
    await processed(service, {0: 50})
    await asyncio.to_thread(delete, here.bootstrap_servers, here.increments)
    if not created:
        with pytest.raises(StateUnsaved, match=r"partition 0 \(batch \d+, 20 entries\)"):
            await service.stop()
        return
    stopping = asyncio.get_running_loop().create_task(service.stop())
    await until(lambda: any(s.error for s in service.restore_status()), "held")
    await ensure(here)
    await stopping
    await here.restored()


async def test_snapshots_that_were_deleted_within_the_last_minute_are_written_again_by_a_stop(stage, unique):
    """The increments reach back to the newest snapshot only, and its records are deleted before the watch looks again:
    the state in memory is the only copy, also if nothing was applied since."""
    here = await stage(apps.ledger(unique("trimmed")), retention={"snapshots_kept": 2})
    async with here.running() as service:
        for part in (1, 2):
            await here.feed(50)
            await processed(service, {0: part * 50})
            await snapshot(service)
        await until(lambda: log_start(here.bootstrap_servers, here.increments) > 0, "trimmed by the owner")
        await asyncio.to_thread(trim_to_end, here.bootstrap_servers, here.snapshots)
    restore = await here.restored()
    assert restore.snapshot is not None


async def test_a_killed_owner_has_left_everything_behind(stage, unique, children):
    """The chain begun anew is one that another process restores, whenever its owner dies after it."""
    here = await stage(apps.ledger(unique("killed")))
    owner = children.start("ledger", here.app.app_id)
    await asyncio.to_thread(owner.wait_live)
    await here.feed(500)
    await asyncio.to_thread(owner.until, lambda: owner.processed() == 500, "processed")
    await asyncio.to_thread(delete, here.bootstrap_servers, here.increments)
    await ensure(here)
    await here.feed(500)
    await asyncio.to_thread(owner.until, lambda: owner.processed() == 1000, "processed")
    await asyncio.to_thread(owner.until, lambda: "is written now" in owner.log, "healed")
    await asyncio.to_thread(owner.until, owner.live, "live")
    owner.kill()
    await here.restored()


@pytest.mark.whole
async def test_a_frozen_owner_does_not_undo_what_its_successor_did(stage, unique, children):
    """It wakes with an old state and finds a topic that is another one. The process that took over has the newer state
    and has written it; if that one is dead, the old state is held, and nothing is processed twice."""
    here = await stage(apps.ledger(unique("frozen")))
    first = children.start("ledger", here.app.app_id)
    await asyncio.to_thread(first.wait_live)
    await here.feed(500)
    await asyncio.to_thread(first.until, lambda: first.processed() == 500, "processed")
    first.process.send_signal(signal.SIGSTOP)
    second = children.start("ledger", here.app.app_id, instance_id="two")
    await asyncio.to_thread(second.wait_live)
    await here.feed(500)
    await asyncio.to_thread(second.until, lambda: second.processed() == 1000, "processed")
    second.kill()
    await asyncio.to_thread(delete, here.bootstrap_servers, here.increments)
    await ensure(here)
    first.process.send_signal(signal.SIGCONT)
    await asyncio.to_thread(
        first.until, lambda: "StateDisputed" in first.raw("/restore-status?scope=local"), "disputed"
    )
    outputs = (await here.read(here.output))[0]
    assert len(outputs) == len(set(reference.ids(outputs))) == 1000


@pytest.mark.whole
async def test_a_state_that_only_a_replay_leads_to_is_written_when_its_input_is_replaced(stage, unique, monkeypatch):
    """No changes, no snapshot, and the input deleted: once the new one is accepted, all of both is in the state."""
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 0.3)
    here = await stage(apps.ledger(unique("input")), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(100)
        await processed(service, {0: 100})
        await asyncio.to_thread(recreate, here.bootstrap_servers, here.input, 1)
        await here.feed(30)
        await phase(service, "failed")
        await accepted(here, service.restore_status()[0].error.hint)
    async with here.running() as service:
        await processed(service, {0: 30})
        assert sum(account["n"] for account in service.view(0).values()) == 130


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}


@pytest.mark.whole
async def test_the_increments_are_compacted_away(stage, unique, monkeypatch):
    """Our records have no keys, so a compacted topic keeps and takes none. The state is told to be the only copy, and
    is written aside. A stop says so; the next start says how the records went, and its hint leads to that state."""
    monkeypatch.setattr("snapreplay.service.supervisor.WATCH_SECONDS", 1.0)
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 2.0)
    here = await stage(apps.ledger(unique("compact")), timeouts={"shutdown_ms": 3000})
    service = here.service()
    await service.start()
    await service.wait_live(scaled(30))
    await here.feed(50)
    await processed(service, {0: 50})
    for name, value in COMPACTED.items():
        await asyncio.to_thread(configure, here.bootstrap_servers, here.increments, name, value)
    await here.feed(10)
    status = await phase(service, "failed")
    assert "cleanup.policy=compact" in status.error.message

    def is_told():
        status = service.restore_status()[0]
        return status.recoverable is False and status.snapshot.snapshot_id in status.unrecoverable_reason

    await until(is_told, "the cleaner, and a snapshot of the state", 120.0)
    with pytest.raises(StateUnsaved, match=service.restore_status()[0].snapshot.snapshot_id):
        await service.stop()
    await asyncio.to_thread(configure, here.bootstrap_servers, here.increments, "cleanup.policy", "delete")
    failed = await here.failure()
    assert "they were compacted away (cleanup.policy=compact)" in failed.error.message
    await accepted(here, failed.error.hint)
    async with here.running() as service:
        await here.assert_exactly_once(service)

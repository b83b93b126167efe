"""B17: T-ZengLiang, T-QuanLiang or both are deleted while their owner runs. Then the state in its memory is the only
copy there is: it is held, and written as soon as there is a topic to write it to."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.decisions.init import init_app
from snapreplay.service.topics import stale_leader
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps, reference
from tests.support.accepting import accepted
from tests.support.entries import read_entry
from tests.support.stage import Stage, phase, processed, snapshot, until
from tests.support.tampering import delete, recreate

pytestmark = pytest.mark.kafka


def increments(here: Stage) -> str:
    return f"{here.app.app_id}-increments"


def snapshots(here: Stage) -> str:
    return f"{here.app.app_id}-snapshots"


async def ensure(here: Stage) -> list[str]:
    """As `snapreplay topics ensure`; a deletion may not be done yet."""
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


async def test_the_increments_are_deleted_and_created_again(stage, unique, busy):
    """The owner says it within seconds, begins the chain anew with what it has in memory, and goes on; a later process
    has exactly the state, and every output was written once."""
    here = await stage(apps.ledger(unique("gone")))
    async with here.running() as service:
        await here.feed(100)
        await processed(service, {0: 100})
        halt = busy(here)
        await asyncio.to_thread(delete, here.bootstrap_servers, increments(here))
        await until(lambda: service.restore_status()[0].error, "noticed")
        assert service.restore_status()[0].error.kind == "IncrementsMissing"
        await ensure(here)
        await phase(service, "live")
        await halt()
        await here.feed(10)
        await here.assert_exactly_once(service)
    assert (await here.restored()).snapshot is not None


async def test_a_state_that_is_no_map_gets_the_batch_in_doubt_with_it(stage, unique, busy):
    """It cannot undo the batch that was being committed when the topic went: its outputs are committed with the state.
    Each record has one output, each output one record."""
    here = await stage(apps.tape(unique("tape")))
    async with here.running() as service:
        await here.feed(100)
        await processed(service, {0: 100})
        halt = busy(here)
        await until(lambda: service.restore_status()[0].batch > 3, "at work")
        await asyncio.to_thread(delete, here.bootstrap_servers, increments(here))
        await until(lambda: service.restore_status()[0].error, "noticed")
        await ensure(here)
        await phase(service, "live")
        await halt()
        await here.all_processed(service)
        tape = service._supervisor.runners[0].store.view.ids
    await same_tape(here, tape)
    async with here.running() as service:
        restored = service._supervisor.runners[0].store.view.ids
        assert restored == tape


async def same_tape(here, tape):
    """The state, and the outputs in their order, are those of every input record once."""
    (inputs,), (outputs,) = (
        await here.read(here.app.inputs[0].name),
        await here.read(here.app.outputs[0].name),
    )
    expected = [f"{here.app.inputs[0].name}-0-{record.offset}" for record in inputs]
    assert tape == expected
    assert reference.ids(outputs) == expected
    assert [value["n"] for _, value in reference.decoded(outputs)] == list(
        range(1, len(expected) + 1)
    )


async def test_the_snapshots_are_deleted_and_created_again(stage, unique, busy):
    """Processing goes on; status says what is missing; a snapshot asked for fails at once with the reason. When the
    topic is there again it gets a snapshot at once, and nothing points into the old one any more."""
    here = await stage(apps.ledger(unique("whole")), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(100)
        await processed(service, {0: 100})
        old = await snapshot(service)
        halt = busy(here)
        await asyncio.to_thread(delete, here.bootstrap_servers, snapshots(here))
        await until(lambda: service.restore_status()[0].recoverable is False, "noticed")
        status = service.restore_status()[0]
        assert f"topic {snapshots(here)} does not exist any more" in status.unrecoverable_reason
        assert "snapreplay topics ensure" in status.unrecoverable_reason
        await here.feed(10)
        await here.all_processed(service)
        triggered = await service.trigger_snapshot([0])
        assert triggered.parts[0].state == "failed"
        assert "does not exist any more" in triggered.parts[0].detail
        assert await ensure(here) == [
            f"ok {increments(here)}",
            f"created {snapshots(here)} (1 partition)",
        ]
        await until(lambda: service.restore_status()[0].recoverable, "recoverable again")
        assert service.restore_status()[0].phase == "live"
        await halt()
        await here.all_processed(service)
        (log,) = await here.read(increments(here))
        pointers = read_entry(log[-1].value).pointers
        assert pointers
        assert old not in [pointer.snapshot_id for pointer in pointers]
    restore = await here.restored(changelog={"enabled": False})
    assert restore.snapshot.snapshot_id == pointers[0].snapshot_id
    assert restore.fallback_from is None


async def test_both_topics_are_deleted_and_created_again(stage, unique, busy):
    """The command creates both, and the owner fills them; `init` finds nothing to do."""
    here = await stage(apps.ledger(unique("both")), 2)
    async with here.running() as service:
        await here.feed(100)
        await here.all_processed(service)
        halt = busy(here)
        both = (increments(here), snapshots(here))
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


@pytest.mark.slow
async def test_a_group_that_subscribes_to_a_topic_that_is_gone_takes_nothing_away(
    broker, stage, unique
):
    """It gives nobody anything then; the owner holds what it has."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers, "metadata.max.age.ms": 1000}
    here = await stage(apps.ledger(unique("group")), kafka=kafka)
    async with here.running() as service:
        await here.feed(50)
        await processed(service, {0: 50})
        await asyncio.to_thread(delete, here.bootstrap_servers, increments(here))
        await until(lambda: service._membership.assignment == frozenset(), "nothing is assigned")
        await until(lambda: service.restore_status()[0].error, "noticed")
        assert not service.control.ready()
        await ensure(here)
        await service.wait_live(30)
        await here.feed(10)
        await here.assert_exactly_once(service)


async def test_a_state_that_only_a_replay_leads_to_is_written_when_its_input_is_replaced(
    stage, unique, monkeypatch
):
    """No changes, no snapshot, and the input deleted: once the new one is accepted, all of both is in the state."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.3)
    here = await stage(apps.ledger(unique("input")), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(100)
        await processed(service, {0: 100})
        await asyncio.to_thread(recreate, here.bootstrap_servers, here.app.inputs[0].name, 1)
        await here.feed(30)
        await phase(service, "failed")
        await accepted(here, service.restore_status()[0].error.hint)
    async with here.running() as service:
        await processed(service, {0: 30})
        assert sum(account["n"] for account in service.view(0).values()) == 130

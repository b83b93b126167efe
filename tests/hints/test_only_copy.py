"""The state is in the memory of one process only: what its status says then, typed as printed while it runs."""

import asyncio

import pytest

from snapreplay.service.core.custody import StateUnsaved
from snapreplay.service.ports import LogRecord
from snapreplay.service.topics import KEPT_FOR_EVER
from tests.hints.following import all_of, way_with
from tests.support.stage import phase, until
from tests.support.tampering import bring_back, delete, recreate

pytestmark = pytest.mark.kafka


async def hint_of(service, kind):
    """As soon as the partition has this error."""
    await until(lambda: (e := service.restore_status()[0].error) and e.kind == kind, kind)
    return service.restore_status()[0].error.hint


@pytest.mark.parametrize("also_stopping", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_deleted_topic_is_created_as_printed_while_its_owner_runs(operator, also_stopping):
    """IncrementsMissing, and StateUnsaved of a stop that waits: one command, and the state is written; LIVE, or ended
    without a loss."""
    then, who = await operator()
    async with who.served() as service:
        await service.wait_live(30)
        delete(then.here.bootstrap_servers, then.increments)
        hint = await hint_of(service, "IncrementsMissing")
        if also_stopping:
            runner = service._supervisor.runners[0]
            stopping = service._loop.create_task(service.stop())
            await until(lambda: runner.holding, "held")
            hint = runner._memory.unsaved.hint
            await who.follow(hint)
            await stopping
        else:
            await who.follow(hint)
            await phase(service, "live")
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 6


@pytest.mark.slow
async def test_a_disputed_state_is_given_up_by_a_restart_and_the_next_error_leads_on(
    operator, broker
):
    """Somebody else has fenced while the topic was gone, so this state is held, not written. The restart says what is
    lost; the next start prints the command that goes on with the newest snapshot."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers, "metadata.max.age.ms": 1000}
    then, who = await operator(timeouts={"shutdown_ms": 3000}, kafka=kafka)
    context = await then.here.context()
    service = who.here.service(who.load())
    await service.start()
    try:
        await service.wait_live(30)
        delete(then.here.bootstrap_servers, then.increments)
        created = await hint_of(service, "IncrementsMissing")
        other = await context.cluster.fence(context.transactional_id)
        await other.commit(0, (), (LogRecord(then.here.app.outputs[0].name, b"{}"),))
        await other.discard()
        await who.follow(created)
        restart = await hint_of(service, "StateDisputed")
    finally:
        lost = (await asyncio.gather(service.stop(), return_exceptions=True))[0]
    assert isinstance(lost, StateUnsaved)
    assert "start again: the partition's error names the command" in lost.hint
    await who.follow(restart)
    await who.follow(way_with(await who.failure(), "snapreplay accept"))
    await who.healthy()


async def test_what_was_in_a_topic_that_was_made_again_is_brought_back(operator):
    """The increments at their old offsets: the same state, and nothing is accepted."""
    then, who = await operator()
    (backup,) = await then.here.read(then.increments)
    recreate(then.here.bootstrap_servers, then.increments, 1, KEPT_FOR_EVER)
    hint = await who.failure()
    assert "bring its records back, with their offsets, from a backup or mirror" in hint
    bring_back(then.here.bootstrap_servers, then.increments, backup)
    async with who.running() as service:
        await all_of(service, then.here.sent + 1)
        assert service.view(0)["k0"]["n"] == 6

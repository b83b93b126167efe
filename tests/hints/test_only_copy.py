"""The state is in the memory of one process only: what its status says then, typed as printed while it runs."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.service.core.custody import StateUnsaved
from snapreplay.service.ports import LogRecord
from snapreplay.service.recovery.copy_in_log import OutputUndecided, resolved
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.hints.following import all_of, way_with
from tests.support import inside
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.reference import Read
from tests.support.stage import phase, until
from tests.support.tampering import bring_back, delete, end_offset, recreate
from tests.support.wire import END_TXN, INIT_PRODUCER_ID, Proxy

pytestmark = pytest.mark.kafka


async def hint_of(service, kind):
    """Return the hint as soon as the partition has this error."""
    await until(lambda: (e := service.restore_status()[0].error) and e.kind == kind, kind)
    return service.restore_status()[0].error.hint


@pytest.mark.parametrize("also_stopping", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_deleted_topic_is_created_as_printed_while_its_owner_runs(operator, also_stopping):
    """IncrementsMissing, and StateUnsaved of a stop that waits: one command, and the state is written; LIVE, or ended
    without a loss. Until then `recoverable` is false, by which SnapreplayNotRecoverable fires."""
    then, who = await operator()
    async with who.served() as service:
        await service.wait_live(scaled(30))
        delete(then.here.bootstrap_servers, then.increments)
        hint = await hint_of(service, "IncrementsMissing")
        held = service.restore_status()[0]
        assert held.recoverable is False
        assert "only in this process's memory" in held.unrecoverable_reason
        if also_stopping:
            runner = inside.runner(service)
            stopping = asyncio.create_task(service.stop())
            await until(lambda: runner._lifecycle.ownership.is_holding, "held")
            hint = runner._memory.unsaved.hint
            await who.follow(hint)
            await stopping
        else:
            await who.follow(hint)
            assert (await phase(service, "live")).recoverable is not False
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 6


@pytest.mark.slow
async def test_a_disputed_state_is_given_up_by_a_restart_and_the_next_error_leads_on(operator, broker):
    """Somebody else has fenced while the topic was gone, so this state is held, not written. The restart says what is
    lost; the next start prints the command that goes on with the newest snapshot."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers, "metadata.max.age.ms": 1000}
    then, who = await operator(timeouts={"shutdown_ms": 3000}, kafka=kafka)
    context = await then.here.context()
    service = who.here.service(who.load())
    await service.start()
    try:
        await service.wait_live(scaled(30))
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
    assert "bring them back, with their offsets, from a backup or mirror" in hint
    bring_back(then.here.bootstrap_servers, then.increments, backup)
    async with who.running() as service:
        await all_of(service, then.here.sent + 1)
        assert service.view(0)["k0"]["n"] == 6


@pytest.mark.slow
async def test_a_doubt_ends_when_the_output_is_there_again(operator):
    """DoubtUnresolved: the increments were replaced and the output lost while a batch was being committed. With a
    mirror of the output the printed retry tells, and the state is written."""
    then, who = await operator()
    servers, output = then.here.bootstrap_servers, then.here.app.outputs[0].name
    (mirror,) = await then.here.read(output)
    first = end_offset(servers, output)
    mirror += [Read(first + n, b"k", b"{}", ()) for n in range(20)]
    proxy = Proxy(servers)
    seen: list[int] = []

    def fault(key):
        seen.append(key)
        if key != END_TXN or INIT_PRODUCER_ID in seen:
            return "pass"
        if seen.count(END_TXN) > 1:
            return "reset before"
        recreate(servers, then.increments, 1, KEPT_FOR_EVER)
        recreate(servers, output, 1)
        return "reset after"

    who.settings["timeouts"] = {"commit_ms": 3000}
    who.settings["kafka"] = {"bootstrap.servers": servers, "request.timeout.ms": 2000}
    async with proxy.through(), who.served() as service:
        await service.wait_live(scaled(30))
        proxy.fault = fault
        await then.here.feed(20)
        held = await phase(service, "failed")
        error = held.error
        assert (error.kind, held.recoverable) == ("DoubtUnresolved", False)
        bring_back(servers, output, mirror)
        await who.follow(error.hint)
        await phase(service, "live")
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 7


async def test_an_undecided_output_is_decided_when_the_transaction_before_it_is_over(operator):
    """OutputUndecided: nobody does anything; after its timeout the broker ends it."""
    then, _ = await operator()
    context, output = await then.here.context(), then.here.app.outputs[0].name
    foreign = AIOKafkaProducer(
        bootstrap_servers=then.here.bootstrap_servers,
        transactional_id=f"{then.here.app.app_id}-foreign",
        transaction_timeout_ms=int(scaled(5) * 1000),
    )
    await foreign.start()
    try:
        producer = await context.cluster.fence(context.transactional_id)
        await foreign.begin_transaction()
        await foreign.send_and_wait(output, b"open", partition=0)
        (offset,) = await producer.commit(0, (), (LogRecord(output, b"{}"),))
        await producer.discard()
        with pytest.raises(OutputUndecided) as undecided:
            await resolved(context, (output, 0, offset))
        assert "do not stop this process" in undecided.value.hint
        found = await until_async(lambda: decided(context, (output, 0, offset)), lambda found: found)
        assert found.committed
    finally:
        await foreign.stop()


async def decided(context, place):
    """Ask once more."""
    try:
        return await resolved(context, place)
    except OutputUndecided:
        return None

"""The state is in the memory of one process only: what its status says then, typed as printed while it runs."""

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.service.ports import LogRecord
from snapreplay.service.recovery.copy_in_log import OutputUndecided, resolved
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.hints.following import all_of
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.stage import phase, until
from tests.support.tampering import bring_back, delete, recreate

pytestmark = pytest.mark.kafka


async def hint_of(service, kind):
    """Return the hint as soon as the partition has this error."""
    await until(lambda: (e := service.restore_status()[0].error) and e.kind == kind, kind)
    return service.restore_status()[0].error.hint


async def test_a_deleted_topic_is_created_as_printed_while_its_owner_runs(operator):
    """IncrementsMissing: one command, and the state is written. Until then
    `recoverable` is false, by which SnapreplayNotRecoverable fires."""
    then, who = await operator()
    async with who.served() as service:
        await service.wait_live(scaled(30))
        delete(then.here.bootstrap_servers, then.increments)
        hint = await hint_of(service, "IncrementsMissing")
        held = service.restore_status()[0]
        assert held.recoverable is False
        assert "only in this process's memory" in held.unrecoverable_reason
        await who.follow(hint)
        assert (await phase(service, "live")).recoverable is not False
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 6


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

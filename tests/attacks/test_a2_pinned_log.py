"""Attack A2: somebody's open transaction in T-ZengLiang holds back its last stable offset. Our commits answer OK and
are invisible; a restart that believed the readable end would do them all again."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from tests.log_tail.tail import ends
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.history import history
from tests.support.kafka import until_async
from tests.support.stage import until

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("impatient")]

OPEN_MS = 600_000  # it ends when the test says so, however long that takes


@pytest.fixture
async def foreign(broker, unique):
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id=unique("other-prefix"),
        transaction_timeout_ms=OPEN_MS,
    )
    await producer.start()
    yield producer
    await producer.stop()


@pytest.mark.parametrize("end", [pytest.param("commit", marks=pytest.mark.whole), "abort"])
async def test_a2_a_restart_behind_a_foreign_transaction_waits_for_its_end(stage, unique, foreign, end):
    """It stays LOCATING while its own commits are invisible, and starts from the last of them when they are not."""
    here = await stage(apps.ledger(unique("pinned")))
    await here.feed(20)
    async with here.running() as service:
        await here.all_processed(service)
        await foreign.begin_transaction()
        await foreign.send_and_wait(here.increments, b"x", partition=0)
        for _ in range(6):
            await here.feed(20)
            await here.all_processed(service)
    stable, high = await ends(await here.context())
    assert high - stable > 12, "six batches and their markers lie behind the foreign record"
    async with here.started(timeouts={"claim_grace_ms": 50}) as service:
        status = service.restore_status
        await until(lambda: [each.phase for each in status()] == ["locating"], "it looks for its claim")
        context = await here.context()
        # Whoever restores has written another transaction behind it.
        await until_async(lambda: ends(context), lambda found: found[1] >= high + 2)
        assert [each.phase for each in status()] == ["locating"]
        await (foreign.commit_transaction() if end == "commit" else foreign.abort_transaction())
        await service.wait_live(scaled(20))
        await here.assert_exactly_once(service)
    told = await asyncio.to_thread(history, here.bootstrap_servers, here.increments, 0)
    told.assert_one_chain()

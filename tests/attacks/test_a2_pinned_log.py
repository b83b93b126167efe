"""Attack A2: somebody's open transaction in T-ZengLiang holds back its last stable offset. Our commits answer OK and
are invisible; a restart that believed the readable end would do them all again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.app import names
from tests.log_tail.tail import ends
from tests.support import apps
from tests.support.history import history
from tests.support.stage import Stage, until

pytestmark = pytest.mark.kafka

OPEN_MS = 60_000


class Pinned:
    """A ledger whose batches after the first ones lie behind a foreign transaction."""

    def __init__(self, here: Stage, foreign: AIOKafkaProducer) -> None:
        self.here = here
        self.foreign = foreign
        self.topic = names.increments_topic(here.app.app_id)


@pytest.fixture
async def pinned(broker: Any, unique: Callable[[str], str]) -> AsyncIterator[Pinned]:
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("pinned"))).prepare()
    foreign = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id=unique("other-prefix"),
        transaction_timeout_ms=OPEN_MS,
    )
    await foreign.start()
    await here.feed(20)
    async with here.running() as service:
        await here.all_processed(service)
        await foreign.begin_transaction()
        await foreign.send_and_wait(names.increments_topic(here.app.app_id), b"x", partition=0)
        for _ in range(6):
            await here.feed(20)
            await here.all_processed(service)
    yield Pinned(here, foreign)
    await foreign.stop()


@pytest.mark.parametrize("end", [pytest.param("commit", marks=pytest.mark.whole), "abort"])
async def test_a2_a_restart_behind_a_foreign_transaction_waits_for_its_end(
    pinned: Pinned, end: str
) -> None:
    """It stays LOCATING while its own commits are invisible, and starts from the last of them when they are not."""
    here = pinned.here
    stable, high = await ends(await here.context())
    assert high - stable > 12, "six batches and their markers lie behind the foreign record"
    service = here.service(timeouts={"claim_grace_ms": 50})
    await service.start()
    try:
        claimed = high + 2  # whoever restores has written another transaction behind it
        await until(lambda: _phase(service) == "locating", "it looks for its claim")
        context = await here.context()
        async with asyncio.timeout(20):
            while (await ends(context))[1] < claimed:  # noqa: ASYNC110 - the broker knows no events
                await asyncio.sleep(0.02)
        assert _phase(service) == "locating"
        foreign = pinned.foreign
        await (foreign.commit_transaction() if end == "commit" else foreign.abort_transaction())
        await service.wait_live(20)
        await here.assert_exactly_once(service)
    finally:
        await service.stop()
    told = await asyncio.to_thread(history, here.bootstrap_servers, pinned.topic, 0)
    told.assert_one_chain()


def _phase(service: Any) -> str:
    return "".join(status.phase for status in service.restore_status())

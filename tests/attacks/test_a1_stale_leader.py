"""Attack A1: the leader of T-ZengLiang is cut from its peers but not from clients. It answers with an old end, for
seconds also after the healing; a restart that believed it would begin a fork."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from snapreplay.errors import RetryableError
from snapreplay.service.clock import wall_ms
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.kafka_errors import Fenced
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import LogRecord
from snapreplay.service.recovery.driver import Recovered, RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.envelope import encode, headers_of
from tests.scenarios.conftest import leader_of
from tests.support import apps
from tests.support.history import history
from tests.support.stage import Stage
from tests.support.three_brokers import ThreeBrokers, three_brokers

pytestmark = [pytest.mark.kafka, pytest.mark.whole, pytest.mark.timeout(600)]
log = logging.getLogger(__name__)

STALE_MIN, ROUNDS_MIN, ROUNDS_MAX = 3, 12, 60
HURRY = {"timeouts": {"fence_ms": 3000, "commit_ms": 3000, "transaction_ms": 10_000, "claim_grace_ms": 200}}


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeBrokers]:
    with three_brokers({"broker.session.timeout.ms": "3000"}) as brokers:
        yield brokers


class Owners:
    """One owner after the other, each through the stale leader's address: restore, commit one batch, die."""

    def __init__(self, here: Stage, stale_server: str) -> None:
        kafka = {"bootstrap.servers": stale_server, "request.timeout.ms": 1000}
        self._tables: dict[str, Any] = {**HURRY, "kafka": kafka}
        self.here = here
        self.stale_answers = 0
        self._committed = {0}  # the batch committed last; two when a commit was not answered

    async def next(self) -> None:
        """Raises AssertionError: it did not find the batch that was committed last."""
        context = await self._context()
        reporter = Reporter(StatusBoard(), 0)
        recovered = await RecoveryDriver(context, Memory(context), reporter).recover()
        chain = recovered.chain
        try:
            self.stale_answers += await self._is_stale(context, chain.owner_epoch)
            assert chain.batch in self._committed, f"{chain.batch}, not {self._committed}"
            await self._commit(context, recovered)
        finally:
            await recovered.producer.discard()

    async def _context(self) -> Context:
        """The checks at start read other topics, perhaps from a leader that is away: until they have passed."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self.here.context(**self._tables)
                except RetryableError:
                    await asyncio.sleep(0.1)  # a back-off, as at a real start

    async def _is_stale(self, context: Context, owner_epoch: int) -> bool:
        """Say whether a reader like the recovery's, but of another client, is given an end before our claim."""
        reader = await KafkaCluster(context.settings).reader()  # `context.cluster` has learnt who leads
        try:
            return (await reader.bounds(context.increments)).end_offset <= owner_epoch
        finally:
            await reader.close()

    async def _commit(self, context: Context, recovered: Recovered) -> None:
        increment = recovered.chain.next_increment(None, None, wall_ms())
        record = LogRecord(context.increments.topic, encode(increment), headers=headers_of(increment))
        try:
            await recovered.producer.commit(0, (), (record,))
        except (RetryableError, Fenced):  # a stale coordinator refuses good epochs, too
            self._committed = {recovered.chain.batch, increment.batch}
        else:
            self._committed = {increment.batch}


@pytest.fixture
async def owners(three: ThreeBrokers, unique: Callable[[str], str]) -> AsyncIterator[Owners]:
    here = await Stage(three.bootstrap_servers, apps.ledger(unique("stale"))).prepare()
    stale = leader_of(three.bootstrap_servers, here.increments)
    found = Owners(here, three.server(stale))
    for _ in range(3):
        await found.next()
    three.cut(stale, "peers")
    yield found
    three.heal()


async def test_a1_no_owner_believes_a_stale_leader(three: ThreeBrokers, owners: Owners) -> None:
    """Restart after restart while the cut lasts, and after the healing: each finds the batch committed last, although
    several were told an older end; the log is one chain."""
    rounds = 0
    while rounds < ROUNDS_MIN or (owners.stale_answers < STALE_MIN and rounds < ROUNDS_MAX):
        await owners.next()
        rounds += 1
    stale = owners.stale_answers
    three.heal()
    for _ in range(ROUNDS_MIN):
        await owners.next()
    log.info(
        "%d restarts, %d stale answers while cut; %d and %d after the healing",
        rounds, stale, ROUNDS_MIN, owners.stale_answers - stale,
    )  # fmt: skip
    assert stale >= STALE_MIN, "no client got a stale answer: nothing was shown"
    here = owners.here
    async with here.running() as service:
        await here.feed(100)
        await here.assert_exactly_once(service)
    told = await asyncio.to_thread(history, here.bootstrap_servers, here.increments, 0)
    told.assert_one_chain()

"""A producer on three brokers: the leader of its log, or its coordinator, is killed."""

import asyncio

import pytest
from aiokafka.client import CoordinationType

from snapreplay.app.record import Output
from snapreplay.service.config.groups import TimeoutSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import CommitInDoubt, Fenced, Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import LogRecord, NewTopic
from tests.scenarios.conftest import leader_of
from tests.support.deadlines import within
from tests.support.kafka import values_of
from tests.support.three_brokers import three_brokers

pytestmark = [pytest.mark.kafka, pytest.mark.whole, pytest.mark.timeout(600)]

COPIES = {"min.insync.replicas": "2"}
FENCE_PAUSE_S = 0.2


@pytest.fixture(scope="module")
def three():
    with three_brokers({"broker.session.timeout.ms": "3000"}) as brokers:
        yield brokers


class Writer:
    """Commits one transaction after the other, with a new producer after each doubt; counts what was answered."""

    def __init__(self, cluster: KafkaCluster, log: str, out: str) -> None:
        self._cluster, self._log, self._out = cluster, log, out
        self.answered: set[int] = set()
        self.in_doubt: set[int] = set()
        self._number = 0

    async def write(self, until_answered: int) -> None:
        producer = None
        while len(self.answered) < until_answered:
            try:
                producer = producer or await self._cluster.fence(f"{self._log}-id")
            except Unreachable:
                await asyncio.sleep(FENCE_PAUSE_S)
                continue
            number, self._number = self._number, self._number + 1
            outputs = [Output(self._out, b"k", b"%d" % number, None, False, None)]
            try:
                await producer.commit(0, outputs, [LogRecord(self._log, b"%d" % number)])
                self.answered.add(number)
                ended = producer.needs_renewal
            except (CommitInDoubt, Fenced):
                self.in_doubt.add(number)
                ended = True
            if ended:
                await producer.discard()
                producer = None
        if producer is not None:
            await producer.discard()


@pytest.mark.parametrize("role", ["leader", "coordinator"])
async def test_what_was_answered_is_there_once_and_all_or_nothing(three, unique, role):
    """In the log and in the output, in order; it commits again while that broker is down, and after its return."""
    servers = three.bootstrap_servers
    timeouts = TimeoutSettings(fence_ms=6000, commit_ms=6000, transaction_ms=20_000)
    cluster = KafkaCluster(
        Settings(kafka={"bootstrap.servers": servers, "request.timeout.ms": 2000}, timeouts=timeouts)
    )
    log, out = unique("log"), unique("out")
    await cluster.create_topics([NewTopic(log, 1, 3, COPIES), NewTopic(out, 1, 3, COPIES)])
    writer = Writer(cluster, log, out)
    async with within(240):
        await writer.write(20)
        if role == "leader":
            victim = await asyncio.to_thread(leader_of, servers, log)
        else:
            async with cluster.client("asking", "Write", "id") as client:
                victim = await client.coordinator(f"{log}-id", CoordinationType.TRANSACTION) - 1
        writing = asyncio.create_task(writer.write(60))
        await asyncio.to_thread(three.kill, victim)
        await writing
        await asyncio.to_thread(three.restart, victim)
        await writer.write(80)
    found = [int(value or b"") for value in await values_of(cluster, log)]
    assert found == [int(value or b"") for value in await values_of(cluster, out)]
    assert found == sorted(set(found))
    assert writer.answered <= set(found) <= writer.answered | writer.in_doubt

"""What a running service shows of the audits of its partitions."""

import asyncio

import pytest

from snapreplay.errors import SnapreplayError
from snapreplay.service.blocking import BlockingProofs
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.live import audit_watch
from snapreplay.snapshots.proof.level import Level
from snapreplay.snapshots.proof.proven import Proof
from tests.support import apps
from tests.support.kafka import until
from tests.support.stage import Stage

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(audit_watch, "WATCH_SECONDS", 0.1)


async def test_a_recorded_proof_is_shown_until_it_cannot_be_read(
    broker, unique, monkeypatch
) -> None:
    """Nothing proven is an empty list, no answer is null; neither concerns the processing."""
    stage = await Stage(broker.bootstrap_servers, apps.ledger(unique("audited"))).prepare()
    proofs = BlockingProofs(stage.settings(), stage.app.app_id, 1_795_000_000_000)
    async with stage.running() as service:

        def status():
            return service.restore_status()[0]

        await until(lambda: status().audited == ())
        assert status().unaudited_batches == status().batch + 1
        for proof in (Proof(Level.REPLAY, 0, 1, "0:0:0"), Proof(Level.INTEGRITY, 3, 9)):
            await asyncio.to_thread(proofs.record, {0: proof})
        await until(lambda: status().audited)
        await until(lambda: len(status().audited) == 2)
        shown = [(each.level, each.batch, each.at) for each in status().audited]
        assert shown == [("integrity", 3, 1_795_000_000.0), ("replay", 0, 1_795_000_000.0)]

        async def no_answer(*_: object) -> SnapreplayError:
            raise Unreachable("no usable answer from Kafka")

        monkeypatch.setattr(
            "snapreplay.service.kafka.cluster.KafkaCluster.committed_offsets", no_answer
        )
        await until(lambda: status().audited is None)
        assert status().unaudited_batches is None
        await stage.feed(5)
        await stage.all_processed(service)

"""Tests of what a running service shows of the audits of its partitions."""

import asyncio

import pytest

from snapreplay.errors import SnapreplayError
from snapreplay.service.blocking import BlockingProofs
from snapreplay.service.clock import time_of
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.live import audit_watch
from snapreplay.service.ports import CommittedOffset
from snapreplay.snapshots.proof.level import Level
from snapreplay.snapshots.proof.proven import Proof, Recorded, to_metadata
from tests.simulation.cluster import SimCluster
from tests.support import apps
from tests.support.in_memory import virtual
from tests.support.proposals import fed
from tests.support.stage import Stage, until
from tests.support.stage import until as until_true


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(audit_watch, "WATCH_SECONDS", 0.1)


@pytest.mark.kafka
async def test_a_recorded_proof_is_shown_until_it_cannot_be_read(broker, unique, monkeypatch) -> None:
    """Nothing proven is an empty list, no answer is null; neither concerns the processing."""
    stage = await Stage(broker.bootstrap_servers, apps.ledger(unique("audited"))).prepare()
    proofs = BlockingProofs(stage.settings(), stage.app.app_id, 1_795_000_000_000)
    async with stage.running() as service:

        def status():
            return service.restore_status()[0]

        await until(lambda: status().audited == ())
        assert status().unaudited_batches == status().batch + 1
        while status().batch < 3:
            await stage.feed(1)
            await stage.all_processed(service)
        for proof in (Proof(Level.REPLAY, 0, 1, "0:0:0"), Proof(Level.INTEGRITY, 3, 9)):
            await asyncio.to_thread(proofs.record, {0: proof})
        await until(lambda: status().audited)
        await until(lambda: len(status().audited or ()) == 2)
        shown = [(each.level, each.batch, each.at) for each in status().audited]
        at = time_of(1_795_000_000_000)
        assert shown == [("integrity", 3, at), ("replay", 0, at)]

        async def no_answer(*_: object) -> SnapreplayError:
            raise Unreachable("no usable answer from Kafka")

        monkeypatch.setattr("snapreplay.service.kafka.cluster.KafkaCluster.committed_offsets", no_answer)
        await until(lambda: status().audited is None)
        assert status().unaudited_batches is None
        await stage.feed(5)
        await stage.all_processed(service)


@virtual
async def test_a_proof_of_a_batch_that_the_log_has_not_counts_for_nothing(bench, monkeypatch, caplog):
    """Increments were lost since: as if audited to the end, nobody would be told."""
    recorded = Recorded((Proof(Level.REPLAY, 1, 9), Proof(Level.INTEGRITY, 50, 200)))

    async def committed(_, __, sources):
        return {each: CommittedOffset(201, to_metadata(recorded)) for each in sources}

    monkeypatch.setattr(SimCluster, "committed_offsets", committed)
    async with bench.live() as one:
        await fed(bench, one)
        await fed(bench, one)
        await until_true(lambda: one.status.audited, "the proofs", 100.0)
        assert [each.batch for each in one.status.audited] == [1]
        assert one.status.unaudited_batches == one.status.batch - 1
        await asyncio.sleep(300 * audit_watch.WATCH_SECONDS)  # virtual time
    assert caplog.text.count("an audit has proven batch 50, but") == 1

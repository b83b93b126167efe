"""Attack B4, the other way round: what was deleted from the input was nothing but transaction markers, and a restart
takes it for lost records."""

import asyncio

import pytest
from confluent_kafka import Producer

from snapreplay.service.live import recoverability_monitor
from tests.support import apps, inside
from tests.support.stage import until
from tests.support.tampering import trim

pytestmark = pytest.mark.kafka


def in_a_transaction(servers: str, topic: str, count: int) -> None:
    """Write as an app of ours writes its outputs: the offset behind the last record is a commit marker."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"up-{topic}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, key=b"k0", value=b'{"amount": %d}' % number, partition=0)
    producer.commit_transaction(20)


async def test_b4_a_marker_behind_the_last_record_is_not_missed(stage, unique, monkeypatch):
    """All was processed, the input went quiet, retention deleted all of it, the marker included: the position moved
    past the marker in time, so the next start finds nothing missing."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.1)
    here = await stage(apps.ledger(unique("marker")))
    topic = here.app.inputs[0].name
    await asyncio.to_thread(in_a_transaction, here.bootstrap_servers, topic, 5)
    async with here.running() as service:
        await until(lambda: service.restore_status()[0].inputs[0].position == 6, "past the marker")
    async with here.running(restore={"mode": "replay"}) as service:
        assert service.restore_status()[0].restore.proof.equal, "a batch of no record is replayed"
    await asyncio.to_thread(trim, here.bootstrap_servers, topic, 0, 6)
    async with here.running() as service:
        assert service.view(0)["k0"]["n"] == 5
        await asyncio.to_thread(in_a_transaction, here.bootstrap_servers, topic, 5)
        await until(lambda: service.restore_status()[0].inputs[0].position == 12, "past both")
        assert service.view(0)["k0"]["n"] == 10


async def test_b4_a_graceful_stop_passes_the_marker_too(stage, unique):
    """Without waiting for the next look; for a state that is no map as well, whose snapshot then needs no replay."""
    here = await stage(apps.tape(unique("marker")), snapshot={"before_stop": True})
    topic = here.app.inputs[0].name
    await asyncio.to_thread(in_a_transaction, here.bootstrap_servers, topic, 5)
    async with here.running() as service:
        await until(lambda: service.restore_status()[0].records_total == 5, "the input")
    await asyncio.to_thread(trim, here.bootstrap_servers, topic, 0, 6)
    async with here.running() as service:
        assert service.restore_status()[0].inputs[0].position == 6
        assert len(inside.runner(service).store.view.ids) == 5

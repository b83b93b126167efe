"""B17: what an owner leaves behind when its topics were deleted under it is right, and whoever judges it says so."""

import asyncio
from typing import Any

import pytest
from pyspark.sql import SparkSession

from snapreplay.service.doctor.collect import examine
from snapreplay.service.partition.incarnation import Incarnation
from snapreplay.service.topics.requirements import ensure_topics
from snapreplay.snapshots.format.records import OWN_KIND
from snapreplay.spark import audit
from tests.checker import app, load, verify
from tests.support.stage import Stage, phase, snapshot, until
from tests.support.tampering import delete, recreate

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


async def send(stage: Stage, seed: int) -> None:
    await asyncio.to_thread(load.send, stage.bootstrap_servers, stage.app.app_id, 1, seed, 200)


async def replaced_under(stage: Stage, service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """T-ZengLiang, while nobody looks at ids: at least one batch is committed to the new one before it is noticed."""
    with monkeypatch.context() as blind:
        blind.setattr(Incarnation, "topics_seen", lambda *_, **__: None)
        topic = f"{stage.app.app_id}-increments"
        await asyncio.to_thread(recreate, stage.bootstrap_servers, topic, 1, KEPT)
        await send(stage, 2)
        await until(lambda: service.restore_status()[0].decisions, "begun anew")
        await phase(service, "live")
        await stage.all_processed(service)


async def snapshots_replaced_under(stage: Stage, service: Any) -> None:
    topic = f"{stage.app.app_id}-snapshots"
    await asyncio.to_thread(delete, stage.bootstrap_servers, topic)
    await until(lambda: service.restore_status()[0].recoverable is False, "noticed")
    await ensure_topics(stage.app, stage.settings(), stage.cluster)
    await until(lambda: service.restore_status()[0].recoverable, "recoverable again")


@pytest.fixture
async def healed(broker: Any, unique: Any, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Each of the app's topics was replaced while it ran, one after the other."""
    stage = await Stage(broker.bootstrap_servers, app.make(unique("judged")), 1).prepare()
    async with stage.running() as service:
        await send(stage, 1)
        await stage.all_processed(service)
        await snapshot(service)
        await replaced_under(stage, service, monkeypatch)
        await snapshots_replaced_under(stage, service)
        await send(stage, 3)
        await stage.all_processed(service)
    return stage


@pytest.mark.whole
async def test_everybody_finds_it_good(spark: SparkSession, healed: Stage) -> None:
    """No finding of the audit, no violation for the checker; both tell what was decided, and what leads nowhere. The
    doctor would recover it."""
    servers, app_id = healed.bootstrap_servers, healed.app.app_id
    verdict = await asyncio.to_thread(verify, servers, app_id, deadline_seconds=30)
    assert verdict.good, str(verdict)
    assert any("its owner begins the chain anew" in why for why in verdict.unchecked)
    assert verdict.counts["orphaned increments"] >= 1
    assert verdict.counts["input records"] > 100
    doctor = await examine(healed.app, healed.settings())
    assert [each.check for each in doctor.findings] == ["brokers"]  # there is only one
    report = await asyncio.to_thread(audit, healed.settings(), app_id)
    assert report.findings == []
    assert [each.finding.startswith(OWN_KIND) for each in report.decisions] == [True]
    assert report.notes["orphaned_increments"] == verdict.counts["orphaned increments"]
    assert report.checked["snapshots_hashed"] == 1

"""A log with a seal on a real broker: owner, compaction, audit. What somebody without the key can write: B19."""

import asyncio

import pytest

from snapreplay.service.control.operations import AdoptSnapshot
from snapreplay.snapshots.jobs.spark_tasks import TaskFailed
from snapreplay.snapshots.proof.report import Level
from snapreplay.spark import audit, compact
from tests.support import apps
from tests.support.proposals import key_file
from tests.support.stage import Stage, snapshot, until

__all__ = ["key_file"]

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


async def test_the_key_decides_on_a_real_broker(spark, broker, unique, key_file) -> None:
    """Processed, compacted, adopted, restored and audited with the key. Without it the audit does not run."""
    app = apps.ledger(unique("sealed"))
    here = await Stage(broker.bootstrap_servers, app, **key_file("a")).prepare()
    async with here.running() as service:
        await here.feed(30)
        await here.all_processed(service)
        await snapshot(service)
        await here.feed(30)
        await here.all_committed(service)
        report = await asyncio.to_thread(compact, here.settings(), app.app_id)
        (result,) = report.partitions
        assert result.outcome.value == "proposed"
        operation = service.control.perform(AdoptSnapshot(0, result.manifest_offset))
        ended = service.control.operation
        await until(lambda: ended(operation.id).parts[0].state == "succeeded", "the adoption")
    assert (await here.restored()).fallback_from is None
    found = await asyncio.to_thread(audit, here.settings(), app.app_id, Level.CHANGES)
    assert found.findings == []
    with pytest.raises(TaskFailed, match="is sealed with key 'a', and this process has no key"):
        await asyncio.to_thread(audit, here.settings(seal={}), app.app_id)

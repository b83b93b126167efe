"""The upgrade drafted by Spark, on a real broker: the old version runs on meanwhile, the new one takes it over."""

import asyncio

import pytest

from snapreplay.app.load import load_app
from snapreplay.snapshots.jobs.compaction import Outcome
from snapreplay.snapshots.proof.proven import Level
from snapreplay.spark import audit, draft_upgrade
from tests.service.recovery.test_upgrade import folded
from tests.support import apps
from tests.support.drafting import second_version
from tests.support.stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


def states(service):
    """Both partitions as one."""
    return {key: value for number in (0, 1) for key, value in service.view(number).items()}


async def test_an_upgrade_is_drafted_while_the_old_version_runs(spark, broker, unique, tmp_path):
    """One partition has gone on since, the other one may have. Both decisions name the job, and the audit is clean."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("drafting")), 2).prepare()
    settings, second = here.settings(), second_version(tmp_path, here.app.app_id)
    async with here.running() as service:
        await here.feed(60)
        await here.all_committed(service)
        report = await asyncio.to_thread(draft_upgrade, settings, second)
        assert [each.outcome for each in report.partitions] == [Outcome.DRAFTED] * 2
        assert sum(each.entries for each in report.partitions) == 20
        await here.feed(5)
        await here.all_processed(service)
    here.app = load_app(second)
    async with here.running() as service:
        said = [each.decisions[0].decided for each in service.restore_status()]
        assert all("; drafted by draft-upgrade@" in each for each in said)
        assert states(service) == folded(65)
    async with here.running() as service:
        assert states(service) == folded(65)
    found = await asyncio.to_thread(audit, settings, here.app.app_id, Level.CHANGES)
    assert found.findings == []

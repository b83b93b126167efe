"""Kafka before the version that all other tests run against: made, run, killed, recovered, equal.

`make brokers` runs this for every version that is known to work; the default is the oldest of them.
"""

import asyncio
import os

import pytest

from snapreplay.devbroker.broker import LocalBroker
from tests.support import apps
from tests.support.child import Load, family
from tests.support.stage import Stage

VERSIONS_VARIABLE = "SNAPREPLAY_TEST_KAFKA_VERSIONS"

pytestmark = [pytest.mark.kafka, pytest.mark.whole]


@pytest.mark.parametrize("version", os.environ.get(VERSIONS_VARIABLE, "3.9.1").split())
async def test_made_run_killed_and_recovered_on_another_version(version, unique, tmp_path):
    """Topics and genesis are made, a kill under load loses and doubles nothing, by changes and by replay."""
    with LocalBroker(version=version) as broker:
        servers = broker.bootstrap_servers
        here = await Stage(servers, apps.ledger(unique("older")), partitions=2).prepare()
        with family(servers, tmp_path) as children, Load(here):
            child = children.start("ledger", here.app.app_id, snapshot__every_records=200)
            await asyncio.to_thread(child.wait_live, 2)
            await asyncio.to_thread(child.until, lambda: child.processed() > 400, "some batches")
            child.kill()
        for mode in ("changes", "replay"):
            async with here.running(restore={"mode": mode}) as service:
                restored = [status.restore for status in service.restore_status()]
                assert all(each.proof.equal and each.mode == mode for each in restored)
                await here.assert_exactly_once(service)

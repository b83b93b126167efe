"""Scenario (a): the broker that coordinates the group dies like a machine without power. Until the others have noticed,
end-offset and metadata calls to it hang: the restore waits, and then completes."""

import asyncio
import logging

import pytest

from tests.scenarios.conftest import SESSION_MS

pytestmark = [pytest.mark.kafka, pytest.mark.whole, pytest.mark.timeout(400)]
log = logging.getLogger(__name__)
RECORDS = 3000


@pytest.mark.parametrize("step", ["Fence", "ReadWindow"])
async def test_a_restore_outlasts_the_death_of_the_coordinator(wide, step):
    """Killed under load; the next process has its partitions and stands before the fence, or has claimed them and
    stands before it looks for the last increment, when the coordinator, which leads one of them, dies. It is LIVE once
    the brokers have new leaders."""
    three, here = wide.three, await wide.ledger("coordinator", 3)
    await here.feed(RECORDS)
    child = wide.start(here, snapshot__every_records=200)
    await wide.took_in(child, RECORDS // 3)
    dying = wide.coordinator(here)
    child.kill()

    gate = wide.gate(step)
    child = wide.start(here, gate=gate, snapshot__every_records=200)
    await wide.stands_at(child, gate)
    three.die(dying)
    gate.open()
    await wide.all_live(child, 3)
    slowest = max(sum(p["seconds_per_phase"].values()) for p in child.partitions().values())
    assert slowest > SESSION_MS / 2000, f"{slowest} s: nothing was waited for"
    await wide.took_in(child, RECORDS)
    assert await asyncio.to_thread(child.terminate) == 0
    log.info("coordinator died at %s, slowest restore %.1f s", step, slowest)

    three.heal()
    await asyncio.to_thread(three.restart, dying)
    await wide.judge(here)

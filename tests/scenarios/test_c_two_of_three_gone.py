"""Scenario (c): two of three brokers are gone. With two copies required nothing can be written; what was acknowledged
is kept, and when they return the work goes on."""

import asyncio

import pytest

from tests.scenarios.ground import still

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(400)]
RECORDS = 3000
OUTAGE_S = 15.0


@pytest.mark.parametrize("hard", [False, True], ids=["killed", "without power"])
async def test_work_goes_on_when_they_return(wide, hard):
    """Under load: nothing is committed meanwhile, nothing FAILED; then all of it, once."""
    three, here = wide.three, await wide.ledger("two-gone", 2)
    await here.feed(RECORDS)
    child = wide.start(here, snapshot__every_records=500)
    await wide.took_in(child, RECORDS // 10)
    for broker in (0, 1):
        three.die(broker) if hard else three.kill(broker)
    committed = child.processed()
    await still(child, OUTAGE_S)
    assert child.processed() <= committed + 2 * 2 * 20, (
        "two batches of 20 may have been under way, in each"
    )
    await back(three)
    await wide.took_in(child, RECORDS)
    await wide.all_live(child, 2)
    assert await asyncio.to_thread(child.terminate) == 0
    await wide.judge(here)


async def test_a_process_that_starts_meanwhile_waits(wide):
    """One broker answers, and cannot give it anything: HTTP is up, nothing FAILED; LIVE when the others are back."""
    three, here = wide.three, await wide.ledger("starts", 2)
    await here.feed(RECORDS)
    child = wide.start(here, snapshot__every_records=500)
    await wide.took_in(child, RECORDS // 10)
    for broker in (0, 1):
        three.kill(broker)
    child.kill()
    child = wide.start(here)
    await wide.serves(child)
    await still(child, OUTAGE_S)
    assert child.live() == set()
    await back(three)
    await wide.took_in(child, RECORDS)
    assert await asyncio.to_thread(child.terminate) == 0
    await wide.judge(here)


async def back(three):
    three.heal()
    for broker in (0, 1):
        await asyncio.to_thread(three.restart, broker)

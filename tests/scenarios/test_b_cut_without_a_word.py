"""Scenario (b): a broker's network is cut in silence, no RST, no answer. It stays the leader, so seek and poll
give nothing for as long as it lasts: never taken for an empty log, or for the log's end."""

import asyncio
import logging
import time

import pytest

from snapreplay.app import names
from tests.scenarios.conftest import leader_of
from tests.support.child import Child

pytestmark = [pytest.mark.kafka, pytest.mark.whole, pytest.mark.timeout(400)]
log = logging.getLogger(__name__)
RECORDS = 1000
SILENCE_S = 12.0
"""Several requests of 2 s each, their repetitions, and at least one new client of the reader (after 5 s)."""

# The step that the restore is about to take, the topic whose leader falls silent then, the mode it is on.
STEPS = {
    "ReadWindow": (names.increments_topic, "changes"),
    "Load": (names.snapshots_topic, "changes"),
    "Advance": (names.increments_topic, "changes"),
    "CheckInputs": ("payments-{}".format, "replay"),
}


@pytest.mark.parametrize("step", STEPS)
async def test_silence_is_not_the_end_of_a_log(wide, step):
    """Each step of a restore that reads meets it: it waits in its phase, in its first attempt, FAILED never; when the
    link is whole again it becomes LIVE."""
    topic_of, mode = STEPS[step]
    three, here = wide.three, await wide.ledger("silence", 1)
    await here.feed(RECORDS)
    child = wide.start(here, snapshot__every_records=300)
    await wide.took_in(child, RECORDS)
    child.kill()

    gate = wide.gate(step)
    child = wide.start(here, gate=gate, restore__mode=mode)
    await wide.stands_at(child, gate)
    await wide.serves(child)
    (before,) = child.partitions().values()
    three.cut(leader_of(wide.bootstrap_servers, topic_of(here.app.app_id)), "clients")
    gate.open()
    await still(child, before["phase"])
    three.heal()
    await wide.all_live(child, 1)
    (after,) = child.partitions().values()
    assert after["proof"]["equal"]
    assert after["fallback_reason"] is None
    assert after["attempts"] == before["attempts"] == 1
    assert await asyncio.to_thread(child.terminate) == 0
    log.info("silence at %s, seconds %s", step, after["seconds_per_phase"])
    await wide.judge(here)


async def still(child: Child, phase: str) -> None:
    """Check that all partitions stay in this phase: what must not happen is looked for."""
    deadline = time.monotonic() + SILENCE_S
    while time.monotonic() < deadline:
        found = await asyncio.to_thread(child.partitions)
        assert {each["phase"] for each in found.values()} == {phase}, found
        await asyncio.sleep(0.1)  # between two looks

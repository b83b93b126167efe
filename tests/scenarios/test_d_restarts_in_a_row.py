"""Scenario (d): a process in a crash loop, ten starts in a minute. What each leaves at the end of T-ZengLiang (claims,
aborted batches, bare markers) is between the next one and the last increment."""

import asyncio

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

# Where each process is killed: the request it never sends, after so many of them. A claim is a transaction, too.
IN_A_BATCH = ("EndTxnRequest", 3)  # all of it sent, not committed
IN_THE_CLAIM = ("EndTxnRequest", 0)
BEFORE_A_RECORD = (
    "ProduceRequest",
    0,
)  # the partition is in the transaction, no record is: a bare marker
IN_THE_FENCE = ("InitProducerIdRequest", 0)
DEATHS = [
    IN_A_BATCH,
    IN_THE_CLAIM,
    BEFORE_A_RECORD,
    IN_THE_FENCE,
    IN_THE_CLAIM,
    BEFORE_A_RECORD,
    BEFORE_A_RECORD,
    IN_A_BATCH,
    BEFORE_A_RECORD,
    IN_THE_CLAIM,
]


@pytest.mark.slow
async def test_ten_restarts_in_a_row_and_the_last_increment_is_found(ground):
    """Behind claims, aborted batches, aborted claims and bare markers; every record counts once."""
    here = await ground.ledger("loop", 1)
    await here.feed(400)
    for point, passes in DEATHS:
        gate = ground.gate(point, passes)
        child = ground.start(here, gate=gate)
        await ground.stands_at(child, gate)
        child.kill()
    child = ground.start(here)
    await ground.took_in(child, 400)
    assert await asyncio.to_thread(child.terminate) == 0
    (told,) = await ground.judge(here)
    assert len(told.aborted) >= DEATHS.count(IN_A_BATCH) + DEATHS.count(IN_THE_CLAIM)
    assert len(told.bare_markers) >= DEATHS.count(BEFORE_A_RECORD)
    assert {i.batch for i in told.increments.values()} == set(range(len(told.increments)))

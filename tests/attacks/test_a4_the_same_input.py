"""A4: the input is the log that was processed, or nothing goes on.

Trimmed and shorter inputs, one input: tests/service/recovery/test_input_identity.py. Counts of records: test_replay.py
there.
"""

import pytest

from tests.support import apps
from tests.support.tampering import recreate

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("impatient")]


async def test_a4_a_topic_made_again_after_a_clean_stop_is_not_taken_for_the_old_one(stage, unique):
    """A final snapshot leaves nothing to replay, so that no digest could tell: the anchor does, and no new record is
    skipped in silence."""
    here = await stage(apps.ledger(unique("again")), snapshot={"before_stop": True})
    async with here.running() as service:
        await here.feed(100)
        await here.all_processed(service)
    topic = here.input
    recreate(here.bootstrap_servers, topic, 1)
    await here.feed(300)
    status = await here.failure()
    assert status.error.kind == "InputReplaced"
    assert f"{topic}-0 holds another record at offset 99 than the one that was processed" in status.error.message
    assert status.restore.proof is None or status.restore.proof.batches_compared == 1
    assert len((await here.read(here.output))[0]) == 100, "nothing was emitted"


async def test_a4_each_of_several_inputs_is_compared(stage, unique):
    """One of two was made again: it is the one that is named."""
    here = await stage(apps.pair(unique("pair")))
    first, again = (topic.name for topic in here.app.inputs)
    for topic in (first, again):
        await here.send([(f"k{n}", {"amount": n}) for n in range(20)], topic)
    async with here.running() as service:
        await here.all_processed(service)
    recreate(here.bootstrap_servers, again, 1)
    await here.send([(f"k{n}", {"amount": -n}) for n in range(30)], again)
    status = await here.failure()
    assert status.error.kind == "InputReplaced"
    assert f"input {again}-0" in status.error.message

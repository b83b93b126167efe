"""B21: a tool has read the records of our topics and written them again. The copies have no transaction markers, so
their records lie at other offsets than every pointer says."""

import asyncio

import pytest

from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.support import reference
from tests.support.accepting import accepted
from tests.support.stage import processed
from tests.support.tampering import messages, recreate, write_again

pytestmark = pytest.mark.usefixtures("impatient")


async def copied(here, *, until_offset=None):
    """Both own topics, loaded again by a tool while the app is stopped; the increments up to this offset of theirs."""
    for topic in (here.increments, here.snapshots):
        (records,) = await here.read(topic)
        count = len(records)
        if topic.endswith("increments") and until_offset is not None:
            count = until_offset + 1
        await asyncio.to_thread(load_again, here.bootstrap_servers, topic, count)


def load_again(servers, topic, count):
    found = messages(servers, topic, count)
    recreate(servers, topic, 1, KEPT_FOR_EVER)
    write_again(servers, topic, found)


async def test_b21_the_cause_is_named_and_the_way_out_leads_on(past):
    """The plan says which records are processed again; that and no more is done twice."""
    then = await past()
    here = then.here
    await copied(here)
    status = await here.failure()
    assert status.error.kind == "OffsetsShifted"
    message = status.error.message
    assert message.startswith(f"topic {then.increments} was deleted and created again")
    assert "not even the genesis" not in message
    proposal, _ = await accepted(here, status.error.hint)
    assert "offsets 80 to 120 are processed again, outputs written a second time" in " ".join(proposal.plan)
    async with here.running() as service:
        await processed(service, {0: 120})
        assert sum(account["n"] for account in service.view(0).values()) == 120
    (outputs,) = await here.read(here.output)
    names = reference.ids(outputs)
    assert len(names) == 160
    assert len(set(names)) == 120

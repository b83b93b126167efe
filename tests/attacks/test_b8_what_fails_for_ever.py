"""B8: what fails in the same way every time is no doubt: a record that the broker never takes is not tried for ever.
A fence without an answer: tests/service/kafka/test_producer_ends.py; a topic that is gone: tests/hints."""

import pytest

from snapreplay.app.ranges import SkippedRange
from tests.support import apps
from tests.support.owner import Owner
from tests.support.tampering import configure

pytestmark = pytest.mark.kafka


COUNT, BAD = 100, 37


def payments(bad):
    """One of them has more to it."""
    return [("0:a", {"amount": n, **(bad if n == BAD else {})}) for n in range(COUNT)]


@pytest.fixture
def shrunk(stage, unique):
    """An app that was LIVE when its output topic's limit was lowered: (stage, its runner)."""

    async def make(**tables):
        here = await stage(apps.ledger(unique("b8"), apps.grow), **tables)
        one = Owner(here, await here.context())
        await one.phase("live")
        await here.send([("0:b", {"amount": 1})])
        await one.position(1)
        topic = here.output
        configure(here.bootstrap_servers, topic, "max.message.bytes", "20000")
        return here, one

    return make


async def test_b8_a_record_that_the_broker_refuses_fails_alone(shrunk):
    """Its batch is cut down to it: all before is committed and in a snapshot, and FAILED names the record, the topic
    and the way out."""
    here, one = await shrunk()
    await here.send(payments({"padding": 30_000}))
    status = await one.phase("failed")
    assert status.error.kind == "HandlerFailed"
    assert status.error.record_id == f"{here.input}-0-{BAD + 1}"
    assert here.output in status.error.message
    assert "max.message.bytes" in status.error.hint or "limits" in status.error.hint
    assert len(await one.outputs()) == BAD + 1
    assert (status.snapshot.reason, status.snapshot.state) == ("failed_partition", "pointed")
    await one.end()


async def test_b8_a_record_that_the_broker_refuses_is_dead_lettered(shrunk):
    """By that policy it alone is skipped; all others are processed, each once, and a replay skips the same."""
    here, one = await shrunk(errors={"policy": "dead_letter"})
    await here.send(payments({"padding": 30_000}))
    await one.position(COUNT + 1)
    topic = here.input
    bad = f"{topic}-0-{BAD + 1}"
    assert await one.outputs() == [f"{topic}-0-{n}" for n in range(COUNT + 1) if n != BAD + 1]
    ((letter,),) = await here.read(here.dead_letters)
    why = dict(letter.headers)
    assert why["__snapreplay.errors.offset"] == str(BAD + 1).encode()
    assert bad in why["__snapreplay.errors.message"].decode()
    await one.end()
    skipped = [part for each in await here.batches() for part in each.skipped]
    assert skipped == [SkippedRange(topic, BAD + 1, BAD + 2)]
    async with here.running(restore={"mode": "replay"}) as service:
        assert service.restore_status()[0].restore.proof.equal

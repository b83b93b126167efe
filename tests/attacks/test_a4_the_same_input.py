"""A4: the input is the log that was processed, or nothing goes on.

Trimmed and shorter inputs, one input: tests/service/recovery/test_inputs.py; counts of records: test_replay.py there.
"""

import asyncio
import signal

import pytest

from snapreplay.service.topics import stale_leader
from tests.support import apps, reference
from tests.support.kafka import until_async
from tests.support.stage import processed, until
from tests.support.tampering import copy_again, recreate, topic_id

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A stale leader is believed for half a second here."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(stale_leader, "ASK_AGAIN_SECONDS", 0.1)


async def test_a4_a_topic_made_again_after_a_clean_stop_is_not_taken_for_the_old_one(stage, unique):
    """A final snapshot leaves nothing to replay, so that no digest could tell: the anchor does, and no new record is
    skipped in silence."""
    here = await stage(apps.ledger(unique("again")), snapshot={"before_stop": True})
    async with here.running() as service:
        await here.feed(100)
        await here.all_processed(service)
    topic = here.app.inputs[0].name
    recreate(here.bootstrap_servers, topic, 1)
    await here.feed(300)
    status = await here.failure()
    assert status.error.kind == "InputReplaced"
    assert (
        f"{topic}-0 holds another record at offset 99 than the one that was processed"
        in status.error.message
    )
    assert status.restore.proof is None or status.restore.proof.batches_compared == 1
    assert len((await here.read(here.app.outputs[0].name))[0]) == 100, "nothing was emitted"


@pytest.mark.parametrize("which", [pytest.param(0, marks=pytest.mark.slow), 1])
async def test_a4_each_of_several_inputs_is_compared(stage, unique, which):
    """One of two was made again: it is the one that is named."""
    here = await stage(apps.pair(unique("pair")))
    names = [topic.name for topic in here.app.inputs]
    for topic in names:
        await here.send([(f"k{n}", {"amount": n}) for n in range(20)], topic)
    async with here.running() as service:
        await here.all_processed(service)
    recreate(here.bootstrap_servers, names[which], 1)
    await here.send([(f"k{n}", {"amount": -n}) for n in range(30)], names[which])
    status = await here.failure()
    assert status.error.kind == "InputReplaced"
    assert f"input {names[which]}-0" in status.error.message


async def test_a4_the_same_records_at_the_same_offsets_are_the_same_input(stage, unique):
    """The anchor is the record, not the topic: an exact copy is gone on with, exactly once."""
    here = await stage(apps.ledger(unique("copy")))
    async with here.running() as service:
        await here.feed(50)
        await here.all_processed(service)
    topic = here.app.inputs[0].name
    await copy_again(here, topic, 50)
    async with here.running() as service:
        await here.feed(10)
        await processed(service, {0: 60})
        _, (expected,) = reference.balances(topic, await here.read(topic), apps.add)
        assert reference.as_plain(service.view(0)) == expected


async def test_a4_a_longer_log_that_took_the_name_while_the_owner_stood_still(
    stage, unique, children
):
    """SIGSTOP, delete, create, load three times as much, SIGCONT: FAILED with both ids, not one record of it is
    committed, and a restart says the same."""
    here = await stage(apps.ledger(unique("frozen")))
    servers, topic = here.bootstrap_servers, here.app.inputs[0].name
    outputs, child = here.app.outputs[0].name, children.start("ledger", here.app.app_id)
    await here.feed(1000)
    await asyncio.to_thread(child.wait_live)
    await until_async(lambda: here.read(outputs), lambda found: len(found[0]) == 1000)
    old = topic_id(servers, topic)
    child.process.send_signal(signal.SIGSTOP)
    try:
        await asyncio.to_thread(recreate, servers, topic, 1)
        await here.feed(3000)
    finally:
        child.process.send_signal(signal.SIGCONT)
    await until(lambda: child.partitions()[0]["phase"] == "failed", "failed")
    error = child.partitions()[0]["error"]
    assert error["kind"] == "InputReplaced"
    assert f"its id was {old}, now it is {topic_id(servers, topic)}" in error["message"]
    assert await asyncio.to_thread(child.terminate) == 0
    assert (await here.failure()).error.kind == "InputReplaced"
    assert len((await here.read(outputs))[0]) == 1000

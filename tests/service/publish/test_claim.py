"""The claim on a real broker: written, seen again, or the reason why not."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.service.core import effects, events
from snapreplay.service.core.refusals import ForeignClaim
from snapreplay.service.ports import LogRecord
from snapreplay.service.publish.claim import await_claim, claim_record
from snapreplay.snapshots.format.records import Claim
from tests.support import apps

pytestmark = pytest.mark.kafka


@pytest.fixture
async def context(stage, unique):
    """A ledger's partition; 0.1 s of patience with one client."""
    here = await stage(apps.ledger(unique("claim")))
    return await here.context(timeouts={"claim_grace_ms": 100})


@pytest.fixture
async def reader(context):
    """One client of the partition."""
    made = await context.cluster.reader()
    yield made
    await made.close()


async def claimed(context, claim_id):
    """Commit a claim; its offset, and when."""
    producer = await context.cluster.fence(context.transactional_id)
    (offset,) = await producer.commit(context.partition, (), (claim_record(context, claim_id),))
    await producer.discard()
    return offset, asyncio.get_running_loop().time()


async def test_our_claim_is_delivered(context, reader):
    """With the start of the log; nobody claimed since."""
    offset, at = await claimed(context, "mine")
    seen = await await_claim(context, reader, effects.SeeClaim("mine", offset, False), at)
    assert seen == events.ClaimSeen(0, None)


async def test_a_claim_behind_ours_is_named(context, reader):
    """The newest one."""
    offset, at = await claimed(context, "mine")
    await claimed(context, "second")
    await claimed(context, "third")
    seen = await await_claim(context, reader, effects.SeeClaim("mine", offset, False), at)
    assert isinstance(seen, events.ClaimSeen)
    assert isinstance(seen.newer, Claim)
    assert seen.newer.claim_id == "third"


async def test_another_record_at_our_offset_is_another_log(context, reader):
    """Whatever this is, it is not what we wrote to."""
    offset, at = await claimed(context, "another")
    with pytest.raises(ForeignClaim, match=rf"Claim\(.*at offset {offset}, where our claim was"):
        await await_claim(context, reader, effects.SeeClaim("mine", offset, False), at)


async def test_no_claim_at_our_offset_is_another_log(context, reader):
    """Not a damaged one: that would need a person."""
    producer = await context.cluster.fence(context.transactional_id)
    record = LogRecord(context.increments.topic, b"no claim")
    (offset,) = await producer.commit(context.partition, (), (record,))
    await producer.discard()
    with pytest.raises(ForeignClaim, match=f"another record at offset {offset}"):
        await await_claim(context, reader, effects.SeeClaim("mine", offset, False), 0.0)


async def test_a_claim_behind_an_open_transaction_is_hidden(context, reader):
    """Last stable offset and high watermark are told apart, after the grace time."""
    foreign = AIOKafkaProducer(
        bootstrap_servers=context.settings.bootstrap_servers,
        transactional_id=f"{context.app.app_id}-foreign",
    )
    await foreign.start()
    try:
        await foreign.begin_transaction()
        sent = await foreign.send_and_wait(context.increments.topic, b"open", partition=0)
        offset, at = await claimed(context, "mine")
        hidden = await await_claim(context, reader, effects.SeeClaim("mine", offset, False), at)
        assert isinstance(hidden, events.ClaimHidden)
        assert hidden.end_offset == sent.offset < offset < hidden.high_watermark
        assert hidden.waited_ms >= 100
        await foreign.abort_transaction()
    finally:
        await foreign.stop()
    seen = await await_claim(context, reader, effects.SeeClaim("mine", offset, False), at)
    assert isinstance(seen, events.ClaimSeen)

"""The claim: written, seen again, or the reason why not."""

import asyncio

import pytest

from snapreplay.app.names import transactional_id
from snapreplay.service.core import effects, events
from snapreplay.service.core.refusals import ForeignClaim
from snapreplay.service.ports import LogRecord
from snapreplay.service.publish.owned import await_claim, claim_record, fenced, fenced_by_owner, owned
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.records import Claim
from tests.support.in_memory import InMemory, virtual


class Claimant:
    """The claimant of a ledger's partition; it has 0.1 s of patience with one client."""

    def __init__(self, context, reader):
        self.context, self.reader = context, reader

    async def writes(self, record):
        """Its offset, and when."""
        producer = await self.context.cluster.fence(self.context.transactional_id)
        (offset,) = await producer.commit(0, (), (record,))
        return offset, asyncio.get_running_loop().time()

    async def claims(self, claim_id):
        return await self.writes(claim_record(self.context, claim_id))

    async def sees(self, offset, at):
        """Return the outcome of its claim "mine" there."""
        effect = effects.SeeClaim("mine", offset, False)
        return await await_claim(self.context, self.reader, effect, at)


async def claimant(bench):
    await bench.prepare()
    context = await bench.context(timeouts={"claim_grace_ms": 100})
    bench.recreate(bench.increments)
    return Claimant(context, await context.cluster.reader())


async def test_our_claim_is_delivered(bench):
    """With the start of the log; there is no claim since."""
    one = await claimant(bench)
    assert await one.sees(*await one.claims("mine")) == events.ClaimSeen(0, None)


async def test_a_claim_behind_ours_is_named(bench):
    """The newest one."""
    one = await claimant(bench)
    mine = await one.claims("mine")
    for other in ("second", "third"):
        await one.claims(other)
    seen = await one.sees(*mine)
    assert isinstance(seen, events.ClaimSeen)
    assert isinstance(seen.newer, Claim)
    assert seen.newer.claim_id == "third"


async def test_another_record_at_our_offset_is_another_log(bench):
    """It is not the topic that we wrote to; nor is it a damaged log, which would need a person."""
    one = await claimant(bench)
    offset, at = await one.claims("another")
    with pytest.raises(ForeignClaim, match=rf"Claim\(.*at offset {offset}, where this process committed"):
        await one.sees(offset, at)
    offset, at = await one.writes(LogRecord(bench.increments, b"no claim"))
    with pytest.raises(ForeignClaim, match=f"another record at offset {offset}"):
        await one.sees(offset, at)


async def test_a_claim_behind_an_open_transaction_is_hidden(bench):
    """Last stable offset and high watermark are distinguished, after the grace time."""
    one, open_at = await claimant(bench), 0
    epoch = bench.open_transaction("foreign", bench.increments, b"open")
    offset, at = await one.claims("mine")
    hidden = await one.sees(offset, at)
    assert isinstance(hidden, events.ClaimHidden)
    assert hidden.end_offset == open_at < offset < hidden.high_watermark
    assert hidden.waited_ms == 0
    again = await one.sees(offset, at)
    assert isinstance(again, events.ClaimHidden)
    assert again.waited_ms >= 100  # as long as the client before had been asked
    bench.broker.end_transaction("foreign", epoch, commit=False)
    assert isinstance(await one.sees(offset, at), events.ClaimSeen)


async def test_an_answer_from_before_a_standstill_hides_no_claim(bench):
    """The process is suspended between the answer and the look at it; the transaction ends meanwhile."""
    one = await claimant(bench)
    epoch = bench.open_transaction("foreign", bench.increments, b"open")
    mine = await one.claims("mine")
    ask = one.reader.bounds

    async def then_stand_still(log):
        answer = await ask(log)
        one.reader.bounds = ask
        await asyncio.sleep(3600)  # virtual time: the standstill
        bench.broker.end_transaction("foreign", epoch, commit=False)
        return answer

    one.reader.bounds = then_stand_still
    assert isinstance(await one.sees(*mine), events.ClaimSeen)


@virtual
async def test_an_owner_fences_once_more_only_if_no_owner_is_known():
    """After an `init` one fence is enough. Once the coordinator has forgotten the last one, it takes two."""
    here = await InMemory().prepare()
    context = await here.context()
    assert (await fenced_by_owner(context)).lineage.producer_epoch == 1
    here.broker.forget(transactional_id(here.app.app_id, 0))
    assert (await fenced(context)).lineage.producer_epoch == 0
    here.broker.forget(transactional_id(here.app.app_id, 0))
    assert (await fenced_by_owner(context)).lineage.producer_epoch == 1
    assert (await fenced_by_owner(context)).lineage.producer_epoch == 2


async def test_what_an_owner_commits_can_be_read_when_it_leaves(bench, monkeypatch):
    """Also where the marker of its transaction comes later than the answer to its commit."""
    await bench.prepare()
    context = await bench.context()
    monkeypatch.setattr(bench.broker, "_marker_lag", lambda: 0.3)
    async with owned(context) as ours:
        last = await ours.last_increment()
        assert last is not None
        offset = await ours.commit(last.increment)
    async with reading(context.cluster) as anybody:
        assert (await anybody.bounds(context.increments)).end_offset > offset

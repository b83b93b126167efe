"""Who owns the partition, asked of a real log."""

from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import OffsetBeyondEnd
from snapreplay.service.ports import Bounds
from snapreplay.service.publish.claim import claim_record
from snapreplay.service.topics import stale_leader
from snapreplay.service.topics.claims import newer_owner
from tests.support import apps
from tests.support.tampering import trim

pytestmark = pytest.mark.kafka


async def claimed(context):
    """Claims, and waits until the claim can be read: a commit is answered before its markers are written."""
    producer = await context.cluster.fence(context.transactional_id)
    (offset,) = await producer.commit(context.partition, (), (claim_record(context, "c"),))
    await producer.discard()
    reader = await context.cluster.reader()
    async for _ in reader.read(context.increments, offset, offset + 1):
        pass
    await reader.close()
    return offset


async def instance_of(context, owner_epoch):
    owner = await newer_owner(context, owner_epoch)
    return owner.instance_id if owner else None


async def test_a_fence_without_a_newer_claim_proves_nothing(stage, unique):
    """Our transaction may only have timed out."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    assert await newer_owner(context, await claimed(context)) is None


async def test_the_newest_claim_is_the_owner(stage, unique):
    """Also when the log before it was trimmed."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    await claimed(await here.context(instance_id="two"))
    last = await claimed(await here.context(instance_id="three"))
    assert await instance_of(context, mine) == "three"
    trim(here.bootstrap_servers, context.increments.topic, 0, last)
    assert await instance_of(context, mine) == "three"
    assert await newer_owner(context, last) is None


async def test_a_newer_owner_that_has_trimmed_its_claim_is_one_all_the_same(stage, unique):
    """Found by the simulator (seed 70329): a process that stood still in its recovery would else take what its
    successor has trimmed for a loss. An owner's own trim makes nobody its successor."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    async with here.running(instance_id="two") as service:
        await here.feed(10)
        await here.all_processed(service)
        epoch = service.restore_status()[0].owner_epoch
        last_offset = service._supervisor.runners[0]._live._committer.chain.last_offset
        trim(here.bootstrap_servers, context.increments.topic, 0, last_offset)
        newer = await newer_owner(context, mine)
        assert newer is not None
        assert "trimmed" in newer.host
        assert await newer_owner(context, epoch) is None


def stale_leaders(monkeypatch, context, count, end_offset):
    """The first `count` clients come to a leader whose log ends there; those that came."""
    connect = context.cluster.reader
    met: list[Any] = []

    async def end(partition):
        return Bounds(0, end_offset)

    async def reader(**options):
        found = await connect(**options)
        if len(met) < count:
            met.append(found)
            monkeypatch.setattr(found, "bounds", end)
        return found

    monkeypatch.setattr(context.cluster, "reader", reader)
    monkeypatch.setattr(stale_leader, "ASK_AGAIN_SECONDS", 0.0)
    return met


async def test_a_leader_that_does_not_know_our_own_claim_is_not_believed(
    stage, unique, monkeypatch
):
    """Found by the simulator (seed 109724): a recovery that stood still took its successor's snapshot for the proof
    that increments were lost, because a stale leader knew of no successor."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    await claimed(await here.context(instance_id="two"))
    met = stale_leaders(monkeypatch, context, 3, mine)
    assert await instance_of(context, mine) == "two"
    assert len(met) == 3


async def test_a_leader_that_does_not_know_what_was_committed_after_our_claim_is_not_believed(
    stage, unique, monkeypatch
):
    """Found by the simulator (seed 302471): as above, but the stale leader knew our own claim. A snapshot names the
    increment that it is of: whoever lacks it cannot say that nobody came after us."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    theirs = await claimed(await here.context(instance_id="two"))
    met = stale_leaders(monkeypatch, context, 3, mine + 1)
    newer = await newer_owner(context, mine, known_offset=theirs)
    assert newer is not None
    assert newer.instance_id == "two"
    assert len(met) == 3


async def test_what_nobody_knows_any_more_is_gone(stage, unique, monkeypatch):
    """Then the log was cut, and there is no newer owner."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.2)
    assert await newer_owner(context, mine, known_offset=mine + 1000) is None


async def test_when_nobody_knows_our_own_claim_the_log_could_not_be_asked(
    stage, unique, monkeypatch
):
    """No answer is not "nobody"; both offsets are named."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    stale_leaders(monkeypatch, context, 1_000_000, mine)
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.2)
    with pytest.raises(OffsetBeyondEnd, match=f"ends at {mine}, but our claim is at {mine}"):
        await newer_owner(context, mine)

"""Who owns the partition, asked of the log."""

from dataclasses import replace
from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import OffsetBeyondEnd
from snapreplay.service.ports import Bounds, LogRecord
from snapreplay.service.publish.claim import claim_record
from snapreplay.service.topics import stale_leader
from snapreplay.service.topics.claims import newer_owner
from snapreplay.snapshots.format.envelope import encode
from tests.support.entries import increment


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Who asks again does so at once."""
    monkeypatch.setattr(stale_leader, "ASK_AGAIN_SECONDS", 0.0)


@pytest.fixture
async def world(past):
    return await past()


async def claimed(world, instance_id="one"):
    """The offset of another claim."""
    context = world.context()
    named = replace(context, identity=replace(context.identity, instance_id=instance_id))
    (offset,) = await world.producer.commit(0, (), (claim_record(named, "c"),))
    return offset


async def owner(world, owner_epoch, **known) -> Any:
    """Who came after; Any, as the test knows whether there is one."""
    return await newer_owner(world.context(), owner_epoch, **known)


async def test_the_newest_claim_is_the_owner(world):
    """Also when the log before it was trimmed. Nobody's: our transaction may only have timed out."""
    mine = await claimed(world)
    assert await owner(world, mine) is None
    await claimed(world, "two")
    last = await claimed(world, "three")
    assert (await owner(world, mine)).instance_id == "three"
    world.cluster.logs["memory-increments"].start_offset = last
    assert (await owner(world, mine)).instance_id == "three"
    assert await owner(world, last) is None


async def test_a_newer_owner_that_has_trimmed_its_claim_is_one_all_the_same(world):
    """Found by the simulator (seed 70329): a process that stood still in its recovery would else take what its
    successor has trimmed for a loss. An owner's own trim makes nobody its successor."""
    mine, theirs = await claimed(world), await claimed(world, "two")
    written = LogRecord("memory-increments", encode(increment(9, owner_epoch=theirs)))
    (offset,) = await world.producer.commit(0, (), (written,))
    world.cluster.logs["memory-increments"].start_offset = offset
    assert "trimmed" in (await owner(world, mine)).host
    assert await owner(world, theirs) is None


def stale_leaders(monkeypatch, world, count, end_offset):
    """The first `count` clients come to a leader whose log ends there; those that came."""
    met: list[None] = []
    bounds = world.cluster.bounds

    async def end(partition):
        if len(met) < count:
            met.append(None)
            return Bounds(0, end_offset)
        return await bounds(partition)

    monkeypatch.setattr(world.cluster, "bounds", end)
    return met


@pytest.mark.parametrize("knows_our_claim", [False, True])
async def test_a_leader_that_does_not_know_what_was_committed_is_not_believed(
    world, monkeypatch, knows_our_claim
):
    """Found by the simulator: a recovery that stood still took its successor's snapshot for the proof that increments
    were lost, because a stale leader knew of no successor (seed 109724). It may know our own claim (seed 302471): a
    snapshot names its increment, and whoever lacks that cannot say that nobody came after us."""
    mine, theirs = await claimed(world), await claimed(world, "two")
    met = stale_leaders(monkeypatch, world, 3, mine + knows_our_claim)
    known = {"known_offset": theirs} if knows_our_claim else {}
    assert (await owner(world, mine, **known)).instance_id == "two"
    assert len(met) == 3


async def test_what_nobody_knows_any_more_is_gone(world, monkeypatch):
    """Then the log was cut, and there is no newer owner."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.02)
    mine = await claimed(world)
    assert await owner(world, mine, known_offset=mine + 1000) is None


async def test_when_nobody_knows_our_own_claim_the_log_could_not_be_asked(world, monkeypatch):
    """No answer is not "nobody"; both offsets are named."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.02)
    mine = await claimed(world)
    stale_leaders(monkeypatch, world, 1_000_000, mine)
    with pytest.raises(OffsetBeyondEnd, match=f"ends at {mine}, but our claim is at {mine}"):
        await owner(world, mine)

"""Tests of who owns the partition, asked of the log."""

from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import OffsetBeyondEnd
from snapreplay.service.ports import Bounds, LogRecord
from snapreplay.service.publish.claim import claim_record
from snapreplay.service.topics.claims import newer_owner
from snapreplay.snapshots.format.envelope import encode
from tests.simulation.reader import SimReader
from tests.support.entries import increment
from tests.support.in_memory import virtual


@pytest.fixture
def claimed(bench, commit):
    """`await claimed(instance_id)` is the offset of another claim."""

    async def one(instance_id="one"):
        return await commit(claim_record(await bench.context(instance_id), "c"))

    return one


async def owner(bench, owner_epoch, **known) -> Any:
    """Say who came after; Any, as the test knows whether there is one."""
    return await newer_owner(await bench.context(), owner_epoch, **known)


@virtual
async def test_the_newest_claim_is_the_owner(bench, claimed):
    """Also when the log before it was trimmed. Nobody's: our transaction may only have timed out."""
    await bench.past()
    mine = await claimed()
    assert await owner(bench, mine) is None
    await claimed("two")
    last = await claimed("three")
    assert (await owner(bench, mine)).instance_id == "three"
    bench.trim(bench.increments, last)
    assert (await owner(bench, mine)).instance_id == "three"
    assert await owner(bench, last) is None


@virtual
async def test_a_newer_owner_that_has_trimmed_its_claim_is_one_all_the_same(bench, claimed, commit):
    """Found by the simulator (seed 70329): a process that stood still in its recovery would else take what its
    successor has trimmed for a loss. An owner's own trim makes nobody its successor."""
    await bench.past()
    mine, theirs = await claimed(), await claimed("two")
    written = increment(9, owner_epoch=theirs)
    bench.trim(bench.increments, await commit(LogRecord(bench.increments, encode(written))))
    assert "trimmed" in (await owner(bench, mine)).host
    assert await owner(bench, theirs) is None


def stale_leaders(monkeypatch, count, end_offset):
    """The first `count` clients come to a leader whose log ends there; those that came."""
    met: list[None] = []
    bounds = SimReader.bounds

    async def end(reader, partition):
        if len(met) < count:
            met.append(None)
            return Bounds(0, end_offset)
        return await bounds(reader, partition)

    monkeypatch.setattr(SimReader, "bounds", end)
    return met


@pytest.mark.parametrize("knows_our_claim", [False, True])
@virtual
async def test_a_leader_that_does_not_know_what_was_committed_is_not_believed(
    bench, claimed, monkeypatch, knows_our_claim
):
    """Found by the simulator: a recovery that stood still took its successor's snapshot for the proof that increments
    were lost, because a stale leader knew of no successor (seed 109724). It may know our own claim (seed 302471): a
    snapshot names its increment, and whoever lacks that cannot say that nobody came after us."""
    await bench.past()
    mine, theirs = await claimed(), await claimed("two")
    met = stale_leaders(monkeypatch, 3, mine + knows_our_claim)
    known = {"known_offset": theirs} if knows_our_claim else {}
    assert (await owner(bench, mine, **known)).instance_id == "two"
    assert len(met) == 3


@virtual
async def test_what_nobody_knows_any_more_is_gone(bench, claimed):
    """Then the log was cut, and there is no newer owner."""
    await bench.past()
    mine = await claimed()
    assert await owner(bench, mine, known_offset=mine + 1000) is None


@virtual
async def test_when_nobody_knows_our_own_claim_the_log_could_not_be_asked(
    bench, claimed, monkeypatch
):
    """No answer is not "nobody"; both offsets are named."""
    await bench.past()
    mine = await claimed()
    stale_leaders(monkeypatch, 1_000_000, mine)
    with pytest.raises(OffsetBeyondEnd, match=f"ends at {mine}, but our claim is at {mine}"):
        await owner(bench, mine)

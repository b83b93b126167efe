"""Proposals of jobs for a LIVE partition: which are adopted, and what else happens meanwhile. Forged ones: B18."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.core.adoption import Reason
from snapreplay.service.core.inspected import TopicChange
from snapreplay.service.live import adopter
from snapreplay.service.topics import snapshots as topics
from snapreplay.snapshots.format.envelope import RecordKind
from tests.simulation.cluster import SimCluster
from tests.support.owner import ends, unreachable
from tests.support.proposals import CHUNKS, Job, answer, asked
from tests.support.stage import until
from tests.support.tampering import flip

# ---- good ones ---------------------------------------------------------------------------------


async def test_a_proposal_is_adopted_and_restored_from(bench):
    """Its pointer is an ordinary one: the next owner starts from it, and everything is exactly once."""
    async with bench.live(records=20) as one:
        await one.feed(20)
        offset = Job(bench).propose()
        await one.feed(20)
        state, snapshot_id, _ = await answer(asked(one, offset))
        assert state == "succeeded"
        taken = one.status.snapshot
        assert (taken.state, taken.reason, taken.batch) == ("pointed", "adopted", 2)
        assert (taken.chunks, taken.manifest_offset) == (CHUNKS, offset)
        assert one.status.rejected_proposals == ()
    pointer = bench.batches()[-1].pointers[0]
    assert (pointer.snapshot_id, pointer.manifest_offset, pointer.batch) == (snapshot_id, offset, 2)
    assert (await bench.restored()).snapshot.snapshot_id == snapshot_id


async def test_a_look_at_the_topic_finds_what_no_request_names(bench, monkeypatch):
    """Also what was written while there was no owner, behind any number of records that nothing points to; the newest
    is adopted, and the older one superseded."""
    monkeypatch.setattr(adopter, "LOOKED_OFFSETS_MAX", 15)
    async with bench.live() as one:
        await one.feed(20)
    job = Job(bench)
    for _ in range(30):
        job.append(b"an orphan")
    old = job.propose()
    async with bench.live(records=20) as one:
        new = job.propose()
        await until(lambda: one.status.snapshot, "the adoption", 600.0)
        await until(lambda: one.status.snapshot.state == "pointed", "the pointer")
        assert one.status.snapshot.manifest_offset == new
        (rejected,) = one.status.rejected_proposals
        assert (rejected.manifest_offset, rejected.reason) == (old, Reason.SUPERSEDED)
    assert bench.batches()[-1].pointers[0].manifest_offset == new


async def test_what_is_due_counts_from_the_adopted_batch(bench):
    """After 40 records and the adoption of a snapshot of the first 20, 20 records are left to the next one."""
    await bench.prepare(snapshot={"every_records": 50, "jitter_ratio": 0})
    async with bench.live(records=20) as one:
        offset = Job(bench).propose()
        await one.feed(20)
        assert (await answer(asked(one, offset)))[0] == "succeeded"
        scheduler = one.live.snapshots
        assert scheduler.unpointed.unmarked().records == 20
        await one.feed(20)
        assert one.status.snapshot.reason == "adopted"
        await one.feed(20)
        await one.pointed("records")
        await bench.assert_exactly_once(one)


async def test_an_empty_state_is_proposed_without_chunks(bench):
    """Of the genesis, say."""
    async with bench.live() as one:
        assert (await answer(asked(one, Job(bench).propose(0))))[0] == "succeeded"
    assert (await bench.restored()).snapshot.batch == 0


# ---- while other things happen -----------------------------------------------------------------


@pytest.fixture
def hashing(monkeypatch):
    """Holds every proposal's first chunk back until `go` is set."""
    gate, hashed = Gate(), topics.hashed_digests

    async def gated(*given):
        gate.reached.set()
        await gate.go.wait()
        return await hashed(*given)

    monkeypatch.setattr(adopter, "hashed_digests", gated)
    return gate


class Gate:
    def __init__(self):
        self.reached, self.go = asyncio.Event(), asyncio.Event()


async def test_what_was_superseded_while_it_was_hashed_is_not_pointed_to(bench, hashing):
    """The owner has taken a newer snapshot meanwhile; pointers never go back."""
    async with bench.live(records=20) as one:
        told = asked(one, Job(bench).propose())
        await hashing.reached.wait()
        await one.feed(20)
        newest = await one.snapshot()
        hashing.go.set()
        state, _, detail = await answer(told)
        assert (state, detail.partition(":")[0]) == ("failed", Reason.SUPERSEDED)
        await one.feed(20)
    assert bench.batches()[-1].pointers[0].snapshot_id == newest
    assert len(bench.batches()[-1].pointers) == 1


async def test_an_own_snapshot_under_way_comes_first(bench, hashing, monkeypatch):
    """At once and after the hashing. It says nothing about the proposal, so nothing is remembered."""
    appending, appender = asyncio.Event(), SimCluster.appender

    async def gated(self):
        await appending.wait()
        return await appender(self)

    monkeypatch.setattr(SimCluster, "appender", gated)
    async with bench.live(records=20) as one:
        offset = Job(bench).propose()
        told, own = asked(one, offset), list[Any]()
        await hashing.reached.wait()
        assert one.runner.request_snapshot("test", ends(own))
        await until(lambda: one.status.snapshot, "a snapshot of its own")
        hashing.go.set()
        under_way = await answer(told)
        assert under_way == await answer(asked(one, offset))
        assert (under_way[0], under_way[2].partition(":")[0]) == (
            "failed",
            # It is of the same batch, but does not exist yet.
            Reason.SNAPSHOT_UNDER_WAY,
        )
        assert one.status.rejected_proposals == ()
        appending.set()
        assert (await answer(own))[0] == "succeeded"


async def test_a_partition_that_ends_leaves_a_proposal_to_the_next_look(bench, hashing):
    """A waiting caller learns it; the hashing delays no one."""
    async with bench.live(records=20) as one:
        told = asked(one, Job(bench).propose())
        await hashing.reached.wait()
    assert (await answer(told))[0] == "failed"
    assert "released" in told[0][2]
    hashing.go.set()
    async with bench.live() as one:
        await one.pointed("adopted")


async def test_a_proposal_that_cannot_be_read_now_is_no_forgery(bench, monkeypatch):
    """A broker is away: told, not remembered, and adopted at the next look."""

    async with bench.live(records=20) as one:
        monkeypatch.setattr(adopter, "hashed_digests", unreachable)
        state, _, detail = await answer(asked(one, Job(bench).propose()))
        assert (state, detail) == ("failed", "it could not be read: no broker")
        monkeypatch.undo()
        await one.pointed("adopted")
        assert one.status.rejected_proposals == ()


async def test_a_replaced_snapshots_topic_has_no_proposals(bench, hashing):
    """Hashed in the old one: its offsets mean nothing any more, and the owner writes a snapshot into the new one."""
    async with bench.live(records=20) as one:
        told = asked(one, Job(bench).propose())
        await hashing.reached.wait()
        bench.recreate(bench.snapshots)
        live = one.live
        change = TopicChange(bench.snapshots, "old", bench.broker.topic_ids[bench.snapshots])
        live.snapshots.topic_changed(change)
        hashing.go.set()
        assert (await answer(told))[0] == "failed"
        assert one.status.rejected_proposals == ()
        await until(lambda: bench.batches()[-1].pointers, "a snapshot of its own", 100.0)
        assert one.status.snapshot.reason == "retention"


async def test_an_adopted_snapshot_from_before_the_damage_mends_nothing(bench, monkeypatch):
    """The recovery had to replay, because changes of a later batch are damaged. The next one would, too: the owner's
    own snapshot follows as soon as one can be written."""
    await bench.past()
    before = Job(bench).propose(7)
    bench.tamper(bench.increments, RecordKind.CHANGES, flip)
    monkeypatch.setattr(SimCluster, "appender", unreachable)
    async with bench.live() as one:
        await one.pointed("adopted")
        assert one.status.snapshot.manifest_offset == before
        monkeypatch.undo()
        await one.pointed("fallback")
    assert (await bench.restored()).mode == "changes"


# ---- who takes snapshots -----------------------------------------------------------------------


async def test_an_owner_that_takes_its_own_adopts_nothing(bench):
    """`snapshot.by = owner`: a request says so, and nothing is looked for."""
    await bench.prepare(snapshot={"by": "owner"})
    async with bench.live(records=20) as one:
        state, _, detail = await answer(asked(one, Job(bench).propose()))
        assert state == "failed"
        assert "snapshot.by" in detail
        await asyncio.sleep(130)  # virtual time: two looks
        assert one.status.snapshot is None
        assert one.status.rejected_proposals == ()


@pytest.mark.parametrize("by", ["owner", "both"])
async def test_a_manifest_ahead_of_a_live_owner_is_outdated_by_a_snapshot(bench, caplog, by):
    """It was not proposed, so a recovery would take it for the witness of a cut log. The owner knows better."""
    await bench.prepare(snapshot={"by": by})
    async with bench.live(records=20) as one:
        await one.snapshot()
        newest = bench.batches()[-1].pointers[0].snapshot_id
        job = Job(bench)
        end = bench.log(bench.increments).end
        offset = job.propose(at=end + 10, proposed_by=None, batch=bench.batches()[-1].batch + 5)
        await one.pointed("retention", unlike=newest)
        assert f"the manifest at offset {offset}" in caplog.text
    await bench.restored()


async def test_a_manifest_ahead_is_outdated_also_if_the_first_snapshot_fails(bench, monkeypatch):
    """The look goes no further before a pointer lies behind it."""
    monkeypatch.setattr(SimCluster, "appender", unreachable)
    async with bench.live(records=20) as one:
        end = bench.log(bench.increments).end
        Job(bench).propose(at=end + 10, proposed_by=None, batch=bench.batches()[-1].batch + 5)
        await until(lambda: one.status.snapshot, "the first one", 100.0)
        await until(lambda: one.status.snapshot.state == "failed", "its end")
        monkeypatch.undo()
        await one.pointed("retention")
    await bench.restored()

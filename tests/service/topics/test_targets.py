"""Tests of what a pointer leads to: another batch than it says is never built on. Copies by a tool: tests/attacks,
B21."""

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay.errors import DamagedError
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.ports import TopicPartition
from snapreplay.service.recovery.copy_in_log import last_now
from snapreplay.service.recovery.follower import Follower, Tally
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import manifest_in
from snapreplay.service.topics.targets import check_last, check_snapshot
from snapreplay.snapshots.log.batches import Base, BrokenChain
from snapreplay.state.digest import Digest
from snapreplay.state.map import MapState
from snapreplay.state.stores import store_of
from tests.simulation.broker import Replica
from tests.simulation.log import View


def manifests(bench):
    """Those of the past, by their order."""
    records = bench.log(bench.snapshots).committed()
    log = TopicPartition(bench.snapshots, 0)
    found = (manifest_in(each.value or b"", log, each.offset) for each in records)
    return [each for each in found if each is not None]


@pytest.mark.parametrize("wrong", [{"batch": 1}, {"positions": {"payments": 1}}, {"digest": Digest(1, 2, 3)}])
async def test_a_snapshot_is_of_the_batch_at_its_offset(bench, wrong):
    """Batch, positions and digest are those of that increment."""
    await bench.past()
    context = await bench.context()
    manifest, last = manifests(bench)[-1], await last_now(context)
    assert last is not None
    async with reading(context.cluster) as reader:
        await check_snapshot(reader, context.increments, manifest, last)
        changed = msgspec.structs.replace(manifest, **wrong)
        with pytest.raises(DamagedError, match=f"snapshot {manifest.snapshot_id} is of batch"):
            await check_snapshot(reader, context.increments, changed, last)


async def test_a_stale_leader_says_nothing_about_what_it_does_not_know(bench):
    """The last increment came from another broker: the recovery asks again, and is not FAILED."""
    await bench.past()
    context = await bench.context()
    last = await last_now(context)
    assert last is not None
    async with reading(context.cluster) as reader:
        await check_last(reader, context.increments, last)
        log = bench.log(bench.increments)
        stale = View(0, last.increment.owner_epoch, last.increment.owner_epoch)
        bench.broker.stale[context.increments] = Replica(stale, log)
        setattr(reader, "_stale", True)  # noqa: B010 - the connection has led to it
        with pytest.raises(OffsetBeyondEnd, match=f"was found at offset {last.offset}"):
            await check_last(reader, context.increments, last)
        with pytest.raises(OffsetBeyondEnd, match=f"was found at offset {last.offset}"):
            await check_snapshot(reader, context.increments, manifests(bench)[-1], last)


async def test_a_walk_ends_with_the_last_batch(bench):
    """Nothing lies between a base at the last increment's offset and the last increment; they need not be one batch."""
    await bench.past()
    context = await bench.context()
    last = await last_now(context)
    assert last is not None
    manifest = msgspec.structs.replace(manifests(bench)[-1], increment_offset=last.offset)
    store = store_of(MapState(str, int))
    follower = Follower(context, store, Reporter(StatusBoard(), 0))
    base = Base.of_snapshot(manifest)
    with pytest.raises(BrokenChain, match="ends with batch 5"):
        await follower.advance(base, last, RestoreMode.CHANGES)
    base = replace(base, batch=last.increment.batch)
    assert await follower.advance(base, last, RestoreMode.CHANGES) == Tally()
    await follower.close_reader()

"""A8: a snapshot of a state that was never committed, or one whose pointer comes from an owner that is gone, would be
restored from for ever. Snapshots are of committed batches, and die with their owner."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import CommitInDoubt
from tests.support import apps
from tests.support.deadlines import within
from tests.support.owner import Owner, ends
from tests.support.stage import until

pytestmark = pytest.mark.kafka


@pytest.fixture
async def one(stage, unique):
    applied: list[object] = []

    def noted(value, account):
        apps.add(value, account)
        applied.append(value)

    here = await stage(apps.ledger(unique("a8"), noted))
    made: Any = Owner(here, await here.context())
    made.applied = applied
    await made.phase("live")
    yield made
    await made.end()


def wanted(one):
    """Ask for a snapshot; what is told about it."""
    told: list[Any] = []
    assert one.runner.request_snapshot("test", ends(told))
    return told


async def test_a8_no_snapshot_is_marked_while_a_batch_is_in_doubt(one, snapshots):
    """Asked for while a batch commits and the next is applied on top: it is of a committed batch, and it loads."""
    producer = one.producer
    commit, gate, under_way = producer.commit, asyncio.Event(), asyncio.Event()

    async def slow(*arguments):
        under_way.set()
        await gate.wait()
        return await commit(*arguments)

    producer.commit = slow
    await one.here.feed(10)
    async with within(30):
        await under_way.wait()
    told = wanted(one)
    await one.here.feed(10)
    snapshots.gate.set()
    await until(lambda: len(one.applied) == 20, "the next batch is applied on top")
    assert one.status.snapshot is None
    assert snapshots.asked == 0
    gate.set()
    await until(lambda: told, "the snapshot")
    assert told[0][0] == "succeeded"
    await one.position(20)
    taken = {each.batch: str(each.digest) for each in await one.here.batches()}
    snapshot: Any = one.status.snapshot
    assert snapshot.digest == taken[snapshot.batch]
    await one.end()
    restore = await one.here.restored()
    assert (restore.snapshot.snapshot_id, restore.proof.equal) == (told[0][1], True)


async def test_a8_a_snapshot_begun_on_a_batch_that_was_dropped_does_not_exist(one, snapshots):
    """The batch in doubt was not committed: nothing may ever have seen it, a snapshot least of all."""
    await one.here.feed(10)
    await one.position(10)
    epoch = one.status.owner_epoch

    async def never(*_):
        told.extend(wanted(one))
        snapshots.gate.set()
        await asyncio.sleep(0.1)  # long enough for a mark to be taken
        raise CommitInDoubt("the answer was lost")

    told: list[object] = []
    one.producer.commit = never
    await one.here.feed(10)
    assert (await one.again_live(epoch)).warm == "dropped"
    assert snapshots.asked == 0


@pytest.mark.parametrize("written", [False, True])
async def test_a8_a_pointer_of_an_owner_that_is_gone_is_never_admitted(one, snapshots, written):
    """Its snapshot was being written, or written and not yet pointed to, when the owner ended: whoever asked is told,
    and no increment ever names it."""
    await one.here.feed(10)
    await one.position(10)
    told, epoch = wanted(one), one.status.owner_epoch
    await until(lambda: snapshots.asked, "the snapshot")
    doubted = asyncio.Event()

    async def never(*_):
        await doubted.wait()
        raise CommitInDoubt("the answer was lost")

    one.producer.commit = never
    if written:
        snapshots.gate.set()
        await until(lambda: one.status.snapshot.state == "written", "the manifest")
    else:
        await one.here.feed(10)
    doubted.set()
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    snapshots.gate.set()
    await one.phase("live")
    await one.here.feed(10)
    await one.position(20)
    assert told[0][0] == "failed"
    assert {tuple(each.pointers) for each in await one.here.batches()} == {()}
    again = wanted(one)
    await until(lambda: again, "the next snapshot")
    assert again[0][0] == "succeeded"

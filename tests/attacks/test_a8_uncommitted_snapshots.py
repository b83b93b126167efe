"""A8: a snapshot of a state that was never committed, or one whose pointer comes from an owner that is gone, would be
restored from for ever. Snapshots are of committed batches, and die with their owner."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import CommitInDoubt
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps
from tests.support.entries import read_entry
from tests.support.owner import Owner
from tests.support.stage import until

pytestmark = pytest.mark.kafka


class Appends(KafkaCluster):
    """The real thing, but a snapshot is written when `gate` is set."""

    def __init__(self, settings):
        super().__init__(settings)
        self.gate, self.asked = asyncio.Event(), 0

    async def appender(self):
        self.asked += 1
        await self.gate.wait()
        return await super().appender()


@pytest.fixture
async def one(stage, unique):
    """A LIVE owner whose snapshots wait for its cluster's gate."""
    here = await stage(apps.ledger(unique("a8")))
    context = await here.context()
    object.__setattr__(context, "cluster", Appends(here.settings()))
    made = Owner(here, context)
    await made.phase("live")
    yield made
    await made.end()


async def increments_of(one):
    records = (await one.here.read(f"{one.here.app.app_id}-increments"))[0]
    return [read_entry(r.value) for r in records if kind_of(r.value) is RecordKind.INCREMENT]


async def wanted(one):
    """Ask for a snapshot; what is told about it."""
    told = []
    assert one.runner.request_snapshot("test", lambda *news: told.append(news))
    return told


async def test_a8_no_snapshot_is_marked_while_a_batch_is_in_doubt(one):
    """Asked for while a batch commits and the next is applied on top: it is of a committed batch, and it loads."""
    producer = one.producer
    commit, gate, under_way = producer.commit, asyncio.Event(), asyncio.Event()

    async def slow(*arguments):
        under_way.set()
        await gate.wait()
        return await commit(*arguments)

    producer.commit = slow
    await one.here.feed(10)
    await asyncio.wait_for(under_way.wait(), 20)
    told = await wanted(one)
    await one.here.feed(10)
    one.context.cluster.gate.set()
    await asyncio.sleep(0.3)  # what must not happen has no condition
    assert one.status.snapshot is None
    assert one.context.cluster.asked == 0
    gate.set()
    await until(lambda: told, "the snapshot")
    assert told[0][0] == "succeeded"
    await one.position(20)
    taken = {each.batch: str(each.digest) for each in await increments_of(one)}
    snapshot: Any = one.status.snapshot
    assert snapshot.digest == taken[snapshot.batch]
    await one.end()
    again = Owner(one.here, await one.here.context())
    restore = (await again.phase("live")).restore
    assert (restore.snapshot.snapshot_id, restore.proof.equal) == (told[0][1], True)
    await again.end()


async def test_a8_a_snapshot_begun_on_a_batch_that_was_dropped_does_not_exist(one):
    """The batch in doubt was not committed: nothing may ever have seen it, a snapshot least of all."""
    await one.here.feed(10)
    await one.position(10)
    epoch, cluster = one.status.owner_epoch, one.context.cluster

    async def never(*_):
        told.extend(await wanted(one))
        cluster.gate.set()
        await asyncio.sleep(0.1)  # long enough for a mark to be taken
        raise CommitInDoubt("the answer was lost")

    told: list[object] = []
    one.producer.commit = never
    await one.here.feed(10)
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    assert cluster.asked == 0
    assert (await one.phase("live")).restore.warm == "dropped"


@pytest.mark.parametrize("written", [False, True])
async def test_a8_a_pointer_of_an_owner_that_is_gone_is_never_admitted(one, written):
    """Its snapshot was being written, or written and not yet pointed to, when the owner ended: whoever asked is told,
    and no increment ever names it."""
    cluster = one.context.cluster
    await one.here.feed(10)
    await one.position(10)
    told, epoch = await wanted(one), one.status.owner_epoch
    await until(lambda: cluster.asked, "the snapshot")
    doubted = asyncio.Event()

    async def never(*_):
        await doubted.wait()
        raise CommitInDoubt("the answer was lost")

    one.producer.commit = never
    if written:
        cluster.gate.set()
        await until(lambda: one.status.snapshot.state == "written", "the manifest")
    else:
        await one.here.feed(10)
    doubted.set()
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    cluster.gate.set()
    await one.phase("live")
    await one.here.feed(10)
    await one.position(20)
    assert told[0][0] == "failed"
    assert {tuple(each.pointers) for each in await increments_of(one)} == {()}
    again = await wanted(one)
    await until(lambda: again, "the next snapshot")
    assert again[0][0] == "succeeded"

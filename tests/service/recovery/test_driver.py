"""One recovery: what it hands over, and who may not interfere."""

import asyncio
import logging
from typing import Any

import pytest

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.owners import Superseded
from snapreplay.service.publish.owned import await_claim, claim_record
from snapreplay.service.recovery import driver as module
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.simulation.cluster import SimCluster
from tests.simulation.reader import SimReader
from tests.support import apps
from tests.support.entries import read_entry
from tests.support.stage import until


def recoverer(context):
    """One, with the store it fills and the board it reports to."""
    memory, board = Memory(context), StatusBoard()
    driver = RecoveryDriver(context, memory, Reporter(board, context.partition))
    return driver, memory.store, board


async def recovered(context):
    return await recoverer(context)[0].recover()


def log_of(here):
    return [(r.offset, kind_of(r.value)) for r in here.log(here.increments).committed()]


async def test_a_recovery_hands_over_a_fenced_producer_and_the_state(bench):
    """The owner epoch is the claim's offset; chain and digest are those of the last increment; every phase took
    time."""
    await bench.past()
    context = await bench.context()
    engine, store, board = recoverer(context)
    result = await engine.recover()
    log = log_of(bench)
    assert log[-1] == (result.chain.owner_epoch, RecordKind.CLAIM)
    assert result.chain.batch == 8
    assert result.chain.last_offset == log[-2][0]
    assert store.digest == result.chain.last.digest
    assert (result.unpointed.records, result.unpointed.fell_back) == (40, False)
    spent = board.get(0).restore.seconds_per_phase
    assert set(spent) == {"fencing", "claiming", "locating", "loading"}


async def test_a_claim_that_the_log_does_not_hold_is_written_again(bench, monkeypatch):
    """Another record is where it was committed, as after an exchange of the topic in this moment."""
    await bench.past()
    ids = iter(["another's"])
    monkeypatch.setattr(module, "claim_record", lambda here, ours: claim_record(here, next(ids, ours)))
    result = await recovered(await bench.context())
    assert result.chain.batch == 8
    claims = [kind for _, kind in log_of(bench)][-2:]
    assert claims == [RecordKind.CLAIM, RecordKind.CLAIM]


async def test_a_newer_claim_ends_it(bench, monkeypatch):
    """Somebody claimed after us, before we looked: not ours any more, and nothing of ours stays open."""
    await bench.past()
    context = await bench.context()
    look = await_claim

    async def after_another(*asked):
        monkeypatch.setattr(module, "await_claim", look)
        await recovered(await bench.context(instance_id="two"))
        return await look(*asked)

    monkeypatch.setattr(module, "await_claim", after_another)
    with pytest.raises(Superseded) as ended:
        await recovered(context)
    assert ended.value.newer.instance_id == "two"
    assert str(ended.value.newer.pid) in ended.value.message


async def without_a_place(bench):
    """A recovery that waits for a place to load: (context, task)."""
    await bench.past()
    context = await bench.context()
    await context.restores.acquire()
    await context.restores.acquire()
    engine, _, board = recoverer(context)
    task = asyncio.create_task(engine.recover())
    await until(lambda: board.get(0).phase == "loading", "loading")
    return context, task


async def test_only_so_many_load_at_once(bench):
    """A full restore needs CPU and memory: the next one waits for a place, and the place is given back."""
    context, task = await without_a_place(bench)
    await asyncio.sleep(0.1)
    assert not task.done()
    context.restores.release()
    await (await asyncio.wait_for(task, 20)).producer.discard()
    assert not context.restores.locked()


async def test_a_cancelled_recovery_leaves_nothing_open(bench, monkeypatch):
    """Stopped in the middle: the producer is discarded, the next one needs no time-out."""
    fence, reader, close = SimCluster.fence, SimCluster.reader, SimReader.close
    producers, readers = [], set()

    async def fenced(self, transactional_id):
        producers.append(await fence(self, transactional_id))
        return producers[-1]

    async def opened(self, **how):
        readers.add(one := await reader(self, **how))
        return one

    async def closed(self):
        readers.discard(self)
        await close(self)

    for owner, name, noting in (
        (SimCluster, "fence", fenced),
        (SimCluster, "reader", opened),
        (SimReader, "close", closed),
    ):
        monkeypatch.setattr(owner, name, noting)
    _, task = await without_a_place(bench)
    assert readers
    task.cancel()
    await asyncio.wait({task})
    assert not readers
    assert producers[-1].needs_renewal
    await (await recovered(await bench.context())).producer.discard()


async def test_the_claim_names_this_process(bench):
    """Host, pid and instance: what the older owner will report."""
    await bench.past()
    context = await bench.context(instance_id="web-7")
    result = await recovered(context)
    async with reading(context.cluster) as reader:
        record: Any = await reader.read_at(context.increments, result.chain.owner_epoch)
    claim = read_entry(record.value)
    assert (claim.instance_id, claim.pid) == ("web-7", context.identity.pid)
    assert (claim.host, claim.process_id) == (context.identity.host, context.identity.process_id)


async def test_another_version_of_the_app_is_reported_once(bench, caplog):
    """Who continues, where whom; nothing after the first batch of the new version."""
    await bench.past()
    new = apps.unseen(apps.ledger("app"), "code:new")
    with caplog.at_level(logging.INFO, "snapreplay"):
        await bench.restored()
        async with bench.live(new, records=1) as one:
            assert one.status.state_largest_entry_bytes > 0, "of the snapshot"
        await bench.restored(new)
    told = [each for each in caplog.messages if "continues from version" in each]
    assert told == [f"partition 0: app version code:new continues from version {bench.app.version}, at batch 8"]

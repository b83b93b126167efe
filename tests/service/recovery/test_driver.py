"""One recovery on a real broker: what it hands over, and who may not interfere."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.kafka_errors import Fenced, Unreachable
from snapreplay.service.core.owners import Superseded
from snapreplay.service.ports import LogRecord
from snapreplay.service.publish.claim import claim_record
from snapreplay.service.recovery import driver as module
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from snapreplay.snapshots.format.envelope import RecordKind, encode, kind_of
from snapreplay.state.store import store_of
from tests.support import apps
from tests.support.entries import increment, read_entry
from tests.support.stage import until
from tests.support.tampering import recreate

pytestmark = pytest.mark.kafka


def recoverer(context):
    """One, with the store it fills and the board it reports to."""
    store, board = store_of(context.app.state()), StatusBoard()
    return RecoveryDriver(context, store, Reporter(board, context.partition)), store, board


async def recovered(context):
    return await recoverer(context)[0].recover()


async def log_of(here):
    records = (await here.read(f"{here.app.app_id}-increments"))[0]
    return [(r.offset, kind_of(r.value)) for r in records]


async def test_a_recovery_hands_over_a_fenced_producer_and_the_state(past):
    """The owner epoch is the claim's offset; chain and digest are those of the last increment; every phase took
    time."""
    then = await past()
    context = await then.here.context()
    engine, store, board = recoverer(context)
    result = await engine.recover()
    try:
        log = await log_of(then.here)
        assert log[-1] == (result.chain.owner_epoch, RecordKind.CLAIM)
        assert result.chain.batch == 8
        assert result.chain.last_offset == log[-2][0]
        assert store.digest == result.chain.last.digest
        assert (result.records_since_snapshot, result.snapshot_now) == (40, False)
        spent = board.get(0).restore.seconds_per_phase
        assert set(spent) == {"fencing", "claiming", "locating", "loading"}
    finally:
        await result.producer.discard()


async def test_a_claim_that_the_log_does_not_hold_is_written_again(past, monkeypatch):
    """Another record is where it was committed, as after an exchange of the topic in this moment."""
    then = await past()
    ids = iter(["another's"])
    monkeypatch.setattr(
        module, "claim_record", lambda here, ours: claim_record(here, next(ids, ours))
    )
    result = await recovered(await then.here.context())
    try:
        assert result.chain.batch == 8
        claims = [kind for _, kind in await log_of(then.here)][-2:]
        assert claims == [RecordKind.CLAIM, RecordKind.CLAIM]
    finally:
        await result.producer.discard()


async def test_nobody_before_can_commit_any_more(past):
    """The producer of an earlier recovery is fenced by the next one."""
    then = await past()
    first = await recovered(await then.here.context())
    second = await recovered(await then.here.context())
    try:
        assert second.chain.owner_epoch > first.chain.owner_epoch
        with pytest.raises(Fenced):
            await first.producer.commit(0, (), (LogRecord(then.increments, b"late"),))
        await second.producer.commit(0, (), (LogRecord(then.increments, b"mine"),))
    finally:
        await first.producer.discard()
        await second.producer.discard()


async def test_an_open_transaction_of_the_owner_before_is_aborted(past):
    """What it had sent is never part of the chain: the last increment is the last committed one."""
    then = await past()
    context = await then.here.context()
    zombie = AIOKafkaProducer(
        bootstrap_servers=then.here.bootstrap_servers, transactional_id=context.transactional_id
    )
    await zombie.start()
    try:
        await zombie.begin_transaction()
        lost = encode(increment(9))
        await (await zombie.send(then.increments, lost, partition=0))
        result = await recovered(context)
        await result.producer.discard()
        assert result.chain.batch == 8
    finally:
        zombie._closed = True
        await zombie.client.close()
        zombie._sender.sender_task.cancel()


async def test_claims_and_aborted_tails_are_searched_behind(past):
    """A crash loop leaves many of them between the last increment and the end."""
    then = await past()
    for _ in range(12):
        result = await recovered(await then.here.context())
        await result.producer.discard()
        assert result.chain.batch == 8
    assert [kind for _, kind in (await log_of(then.here))[-12:]] == [RecordKind.CLAIM] * 12


async def test_a_newer_claim_ends_it(past, monkeypatch):
    """Somebody claimed after us, before we looked: not ours any more, and nothing of ours stays open."""
    then = await past()
    context = await then.here.context()
    claim = RecoveryDriver._claim

    async def and_then_another(self):
        done = await claim(self)
        monkeypatch.setattr(RecoveryDriver, "_claim", claim)
        other = await recovered(await then.here.context(instance_id="two"))
        await other.producer.discard()
        return done

    monkeypatch.setattr(RecoveryDriver, "_claim", and_then_another)
    with pytest.raises(Superseded) as ended:
        await recovered(context)
    assert ended.value.newer.instance_id == "two"
    assert str(ended.value.newer.pid) in ended.value.message


async def test_a_foreign_open_transaction_is_waited_for(past):
    """It hides our claim: patience, with new clients; when it ends we go on. Never an old end."""
    then = await past()
    foreign = AIOKafkaProducer(
        bootstrap_servers=then.here.bootstrap_servers, transactional_id=f"{then.input}-foreign"
    )
    await foreign.start()
    await foreign.begin_transaction()
    await (await foreign.send(then.increments, b"foreign", partition=0))
    engine, _, board = recoverer(await then.here.context(timeouts={"claim_grace_ms": 50}))
    task = asyncio.create_task(engine.recover())
    try:
        await until(lambda: board.get(0).phase == "locating", "locating")
        for _ in range(20):  # many times the grace
            await asyncio.sleep(0.05)
            assert not task.done()
        await foreign.abort_transaction()
        result = await asyncio.wait_for(task, 20)
        assert result.chain.batch == 8
        await result.producer.discard()
    finally:
        await foreign.stop()


async def test_what_fails_for_a_while_is_tried_again_with_patience(past):
    """Unreachable twice: the third attempt is LIVE, the status counts attempts and shows the error."""
    then = await past()
    context = await then.here.context()
    engine, _, board = recoverer(context)
    fence, failures = context.cluster.fence, [Unreachable("no broker"), Unreachable("still none")]
    seen = []

    async def unlucky(transactional_id):
        if failures:
            raise failures.pop(0)
        seen.append(board.get(0).error)
        return await fence(transactional_id)

    context.cluster.fence = unlucky
    result = await engine.recover()
    await result.producer.discard()
    assert board.get(0).restore.attempt == 3
    assert seen[0].message == "still none"


async def without_a_place(then):
    """A recovery that waits for a place to load: (context, driver, task)."""
    context = await then.here.context()
    await context.restores.acquire()
    await context.restores.acquire()
    engine, _, board = recoverer(context)
    task = asyncio.create_task(engine.recover())
    await until(lambda: board.get(0).phase == "loading", "loading")
    return context, engine, task


async def test_only_so_many_load_at_once(past):
    """A full restore needs CPU and memory: the next one waits for a place, and the place is given back."""
    context, _, task = await without_a_place(await past())
    await asyncio.sleep(0.1)
    assert not task.done()
    context.restores.release()
    await (await asyncio.wait_for(task, 20)).producer.discard()
    assert not context.restores.locked()


async def test_a_cancelled_recovery_leaves_nothing_open(past):
    """Stopped in the middle: the producer is discarded, the next one needs no time-out."""
    then = await past()
    _, engine, task = await without_a_place(then)
    task.cancel()
    await asyncio.wait({task})
    assert engine._producer is None
    assert engine._executor._log_reader is None
    await (await recovered(await then.here.context())).producer.discard()


async def test_an_app_that_was_never_initialised_is_not_a_new_one(stage, unique):
    """FAILED with the command, although topics and partition are empty."""
    here = await stage(apps.ledger(unique("fresh")))
    recreate(here.bootstrap_servers, f"{here.app.app_id}-increments", 1, KEPT_FOR_EVER)
    status = await here.failure()
    assert status.error.kind == "NotInitialised"
    assert "snapreplay init" in status.error.hint


async def test_the_claim_names_this_process(past):
    """Host, pid and instance: what the older owner will report."""
    then = await past()
    context = await then.here.context(instance_id="web-7")
    result = await recovered(context)
    await result.producer.discard()
    reader = await context.cluster.reader()
    try:
        record = await reader.read_at(context.increments, result.chain.owner_epoch)
    finally:
        await reader.close()
    claim = read_entry(record.value)
    assert (claim.instance_id, claim.pid) == ("web-7", context.identity.pid)
    assert (claim.host, claim.process_id) == (context.identity.host, context.identity.process_id)


async def test_a_state_that_is_no_map_is_replayed_at_once(stage, unique):
    """No detour by changes that were never written: nothing is loaded twice, no snapshot taken for a fallback."""
    here = await stage(apps.tape(unique("tape")))
    async with here.running() as service:
        await here.feed(20)
        await here.all_processed(service)
    engine, _, board = recoverer(await here.context())
    result = await engine.recover()
    await result.producer.discard()
    restore = board.get(0).restore
    assert (restore.mode, restore.fallback_reason) == ("replay", None)
    assert not result.snapshot_now

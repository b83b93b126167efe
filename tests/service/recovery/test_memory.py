"""Tests of what may become of a state in memory between two ownerships."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.custody import IncrementsMissing, IncrementsReplaced, Verdict
from snapreplay.service.core.kafka_errors import OffsetTrimmed, Unreachable
from snapreplay.service.core.retained import Ending, RetainedState
from snapreplay.service.ports import LogRecord, NewTopic
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.recovery import memory as module
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory, no_fence_since
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.service.runtime.report import Reporter
from tests.service.core.test_refusals import EXPECTED
from tests.service.recovery.test_copy_in_log import held as held_in
from tests.support import apps
from tests.support.entries import increment
from tests.support.in_memory import virtual
from tests.support.owner import unreachable


async def left_by(bench):
    """The memory of an owner that has just ended, and its epoch."""
    context = await bench.context()
    memory = Memory(context)
    recovered = await RecoveryDriver(context, memory, Reporter(StatusBoard(), 0)).recover()
    await recovered.producer.discard()
    memory.kept = RetainedState(recovered.chain.last, recovered.chain.last_offset)
    return memory, recovered.chain.owner_epoch


async def held(bench):
    """The same, after one batch."""
    async with bench.live() as one:
        await one.feed(20)
    return await left_by(bench)


async def test_a_state_is_let_go_only_when_the_log_leads_to_it(bench):
    """Not while its topic is missing, nor when another one took its place."""
    memory, _ = await held(bench)
    assert await memory.is_proven()
    assert await memory.loss() is None
    bench.broker.delete(bench.increments)
    assert isinstance(await memory.loss(), IncrementsMissing)
    await memory.forget_if_proven()
    assert memory.kept is not None
    assert len(memory.store.view)
    bench.broker.create(bench.increments, 1)
    assert isinstance(await memory.loss(), IncrementsReplaced)
    await memory.forget_if_proven()
    assert memory.kept is not None


async def test_who_has_claimed_since_is_not_disturbed(bench, monkeypatch):
    """What is held is held beside the new owner; and beside one that may be, while the log cannot be read."""
    memory, epoch = await held(bench)
    assert not await memory.is_others(epoch)
    await left_by(bench)
    assert await memory.is_others(epoch)
    trimmed = OffsetTrimmed("trimmed between two requests")
    monkeypatch.setattr(module, "newer_owner", AsyncMock(side_effect=trimmed))
    assert await memory.is_others(epoch)


async def test_what_would_be_lost_is_named(bench, caplog):
    """Partition, batch, entries, and the command; in the log once, however often it is looked."""
    memory, _ = await held(bench)
    for _ in range(3):
        assert await memory.is_to_be_written(None)
    assert [each for each in caplog.messages if "is kept in memory" in each] == [
        f"partition 0: its state is kept in memory: {memory.unsaved}"
    ]
    assert "partition 0 (batch 1, 20 entries)" in memory.unsaved.message
    assert "snapreplay topics ensure" in memory.unsaved.hint
    memory.forget()
    assert memory.unsaved is None


def unasked():
    """The memory of an owner whose cluster is not there."""
    context: Any = SimpleNamespace(
        app=apps.ledger("a"),
        cluster=SimpleNamespace(topic_ids=unreachable),
        increments=SimpleNamespace(topic="a-increments"),
        snapshots=SimpleNamespace(topic="a-snapshots"),
        partition=0,
        expected=EXPECTED,
    )
    memory = Memory(context)
    memory.kept = RetainedState(increment(9), 33)
    return memory


@pytest.mark.parametrize("what", ["replaced", "unrecoverable", "answered before"])
@virtual
async def test_no_answer_is_no_proof_of_a_state_that_was_in_no_log(what):
    """Only an answer changes what the last one said."""
    memory = unasked()
    assert await memory.is_proven()
    assert memory.unproven is None
    if what == "replaced":
        memory.replaced()
    elif what == "unrecoverable":
        memory.recoverable = False
    else:
        memory.proven = False
    assert not await memory.is_proven()
    assert memory.unproven is not None
    await memory.forget_if_proven()
    assert memory.kept is not None


async def test_who_has_fenced_since_is_known_without_the_log(bench):
    """Also when T-ZengLiang is gone with all claims."""
    await bench.past()
    context = await bench.context()
    _producer, memory = await held_in(context)
    unknown = Memory(context, kept=replace(memory.kept, lineage=None))
    assert await no_fence_since(context, memory)
    assert not await no_fence_since(context, unknown)
    bench.broker.delete(bench.increments)
    assert await no_fence_since(context, memory)
    await context.cluster.create_topics([NewTopic(bench.increments, 1)])
    theirs = await context.cluster.fence(context.transactional_id)
    await theirs.commit(0, (), (LogRecord(bench.increments, b"claim"),))
    assert not await no_fence_since(context, memory)


async def test_a_fence_of_ours_whose_answer_was_lost_is_known_by_what_it_has_ended(bench):
    """A transaction that is never asked to commit was seen open: the fence that ends it raises the epoch by two."""
    await bench.past()
    context = await bench.context()
    _producer, memory = await held_in(context)
    bench.open_transaction(context.transactional_id, bench.output, b"{}")
    ours = (await context.cluster.last_fence(context.transactional_id)).lineage
    memory.kept = replace(memory.kept, lineage=ours, ending=Ending(asked=False))
    assert await no_fence_since(context, memory)
    await (await context.cluster.fence(context.transactional_id)).discard()
    assert await no_fence_since(context, memory)
    assert not await no_fence_since(context, Memory(context, kept=memory.kept))
    await (await context.cluster.fence(context.transactional_id)).discard()
    assert not await no_fence_since(context, memory)


async def test_only_what_is_whole_and_in_the_log_is_left_as_a_copy(bench):
    """Nothing is in doubt, and no state is in memory twice. One that is to be held is not given away."""
    await bench.prepare()
    memory, _ = await held(bench)
    kept, store = memory.kept, memory.store
    for other in (replace(kept, doubtful=increment(batch=1)), replace(kept, replaced=True)):
        memory.kept = other
        assert memory.leave() is None
        assert (memory.kept, memory.store) == (other, store)
    memory.kept = kept
    left, copy = memory.leave()
    assert left is store
    assert (copy.last.increment, copy.last.offset) == (kept.last, kept.last_offset)
    assert (memory.kept, memory.store) == (None, None)
    assert memory.leave() is None


async def test_a_copy_has_nothing_of_a_batch_that_was_applied_and_never_committed(bench):
    """An owner ends while the next batch is applied on top: staged or only touched. The next owner from the copy would
    commit it with a batch of its own."""
    memory, _ = await held(bench)
    store, last = memory.store, memory.kept.last
    before = dict(store.view), store.digest
    store.begin()
    store.stream_time_ms = last.stream_time_ms + 1000
    for key in ("k0", "new"):
        store.view[key]["sum"] += 1
    await run_cooperatively(store.staging())
    store.view["k1"]["sum"] += 1
    left = memory.leave()
    assert left is not None
    left[0].begin()
    sealed = await run_cooperatively(sealed_by(left[0]))
    assert (sealed.changes, store.stream_time_ms) == ({}, last.stream_time_ms)
    left[0].drop()
    assert (dict(store.view), store.digest) == before


def sealed_by(store):
    """Seal an empty batch."""
    yield from store.staging()
    return (yield from store.sealing())


async def test_a_newer_state_does_not_wait_for_the_attempts_of_an_older_one(bench, monkeypatch):
    """Each state has its own attempts to be written aside, however often they fail."""
    memory, _ = await held(bench)
    write = AsyncMock(side_effect=Unreachable("no leader", orphans=1))
    monkeypatch.setattr(module, "looked_up", AsyncMock(return_value=Verdict.ONLY_COPY))
    monkeypatch.setattr(snapshot_writer, "write", write)
    monkeypatch.setattr(snapshot_writer, "mark", lambda *_: None)
    memory.proven, reporter = False, Reporter(StatusBoard(), 0)
    for count in range(1, 1100):
        await memory.write_aside(reporter)
        await memory.write_aside(reporter)
        assert write.await_count == count
        await asyncio.sleep(module.ASIDE_SECONDS_MAX)
    await memory.write_aside(reporter)
    memory.kept = replace(memory.kept, last=increment(9))
    await memory.write_aside(reporter)
    assert write.await_count == 1101
    await asyncio.sleep(2 * module.ASIDE_SECONDS_MIN)
    await memory.write_aside(reporter)
    assert write.await_count == 1102

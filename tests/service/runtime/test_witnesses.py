"""Tests of how far a process says that its partitions are committed, and what a recovery makes of it. On a broker:
attack C6."""

import asyncio
from contextlib import suppress

import msgspec
import pytest

from snapreplay.app.names import witness_group
from snapreplay.errors import StopError
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core import effects
from snapreplay.service.core.kafka_errors import NotAuthorized, Unreachable
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.retained import RetainedState, Warm
from snapreplay.service.core.witness import IncrementsBehind, Witness
from snapreplay.service.ports import CommittedOffset
from snapreplay.service.recovery.copy_in_log import last_now
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.service.recovery.memory import Memory, NothingYet, require_no_other_fence
from snapreplay.service.runtime import witnesses as module
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.witnesses import Witnesses
from snapreplay.service.supervisor import Supervisor
from snapreplay.state.stores import store_of
from tests.simulation.cluster import SimCluster
from tests.support.entries import increment
from tests.support.stage import until


class Kept:
    """A committer that keeps what it is given, or raises."""

    def __init__(self, *errors):
        self.written, self.errors, self.closed = [], list(errors), False

    async def commit(self, offsets):
        if self.errors:
            raise self.errors.pop(0)
        self.written.append(offsets)

    async def close(self):
        self.closed = True


async def turns(witnesses, committer, count):
    """That many times."""
    with suppress(TimeoutError):
        async with asyncio.timeout((count + 0.5) * module.WRITE_SECONDS):
            await witnesses.keep_writing(committer)


async def test_only_what_has_changed_is_written(bench):
    """All partitions in one request, a few seconds apart; the last ones at the end."""
    context = await (await bench.prepare()).context()
    ours, committer = Witnesses("app-witness"), Kept()
    ours.reached(context.increments, increment(1), 10)
    ours.reached(context.increments, increment(2), 20)
    await turns(ours, committer, 3)
    (written,) = committer.written
    committed = written[context.increments]
    read = Witness.from_metadata(committed.metadata)
    assert read is not None
    assert (committed.offset, read.batch) == (21, 2)
    ours.reached(context.increments, increment(3), 30)
    await ours.end(committer)
    assert [each[context.increments].offset for each in committer.written] == [21, 31]
    assert committer.closed


async def test_what_another_process_owns_is_not_written_any_more(bench):
    """Not at the end either: the next owner may have written a later batch, and be quiet since."""
    context = await (await bench.prepare()).context()
    ours, committer = Witnesses("app-witness"), Kept()
    ours.reached(context.increments, increment(1), 10)
    ours.forget(context.increments)
    await turns(ours, committer, 2)
    await ours.end(committer)
    assert committer.written == []
    ours.reached(context.increments, increment(1), 10)
    await turns(ours, committer, 2)
    assert len(committer.written) == 1, "it is ours again"


async def test_a_fenced_owner_has_nothing_to_write_any_more(bench):
    """At its end it would set the newer owner's back."""
    await bench.prepare()
    first = await bench.live_owner(records=20)
    second = await bench.live_owner("two", records=20)
    await first.phase("fenced")
    old, new = Kept(), Kept()
    await first.context.witnesses.end(old)
    await second.context.witnesses.end(new)
    assert (len(old.written), len(new.written)) == (0, 1)


async def test_a_released_partition_is_not_written_at_the_end(bench, monkeypatch):
    """It is another process's by then, however this one ended."""
    await bench.prepare()
    given, committer, board = await bench.context(), Kept(), StatusBoard()
    monkeypatch.setattr(SimCluster, "offset_committer", lambda *_: committer)
    parts = (given.app, given.settings, given.cluster, given.view, given.identity)
    supervisor = Supervisor(*parts, board, lambda *_: None)
    supervisor.assigned({0})
    await until(lambda: [each.phase for each in board.all()] == ["live"], "live")
    supervisor.assigned(set())
    await until(lambda: not board.all(), "its end")
    await supervisor.stop(last_snapshot=False, deadline_seconds=5.0)
    assert committer.written == []


async def test_a_process_that_stood_still_writes_one_turn_later(bench, monkeypatch):
    """By then it has heard whether another one owns its partitions."""
    context = await (await bench.prepare()).context()
    ours, committer = Witnesses("app-witness"), Kept()
    ours.reached(context.increments, increment(1), 10)
    sleep, slept = asyncio.sleep, []

    async def frozen_once(seconds):
        slept.append(seconds)
        await sleep(seconds if len(slept) > 1 else 6 * seconds)
        slept.append(len(committer.written))

    monkeypatch.setattr(asyncio, "sleep", frozen_once)
    await turns(ours, committer, 8)
    assert slept[1::2][:3] == [0, 0, 1]


async def test_a_missing_permission_is_a_warning_once(bench, caplog):
    """Processing continues, and what could not be written is tried again. A broker that is away is not logged."""
    context = await (await bench.prepare()).context()
    refused = NotAuthorized("Read on group app-witness", hint="kafka-acls.sh --add")
    ours, committer = Witnesses("app-witness"), Kept(refused, refused, Unreachable("no answer"))
    ours.reached(context.increments, increment(1), 10)
    await turns(ours, committer, 4)
    assert len(committer.written) == 1
    assert caplog.text.count("could not be written to group app-witness") == 1
    assert caplog.text.count("would go unnoticed: Read on group app-witness (kafka-acls.sh") == 1
    assert "no answer" not in caplog.text


async def said(bench, ahead):
    """A witness of so many batches after the last one."""
    context = await bench.context()
    last = await last_now(context)
    assert last is not None
    later = msgspec.structs.replace(last.increment, batch=last.increment.batch + ahead)
    witness = Witness.of(context.increments.topic, later, last.offset + ahead)
    key = (witness_group(bench.app.app_id), context.increments)
    bench.broker.group_offsets[key] = CommittedOffset(1, witness.metadata)
    return context


@pytest.mark.parametrize("ahead", [0, -3])
async def test_an_equal_or_older_witness_is_no_alarm(bench, ahead):
    """The group's offsets may lag, or come from an older disk."""
    await bench.past()
    await said(bench, ahead)
    await bench.restored()


async def test_a_state_in_memory_is_not_the_newest_because_the_log_ends_with_it(bench):
    """Another owner continued, and the log has lost that: the fenced one asks before it takes up its state."""
    await bench.past()
    context = await said(bench, 2)
    last = await last_now(context)
    assert last is not None
    made = RecoveryExecutor(context, store_of(context.app.state()), Reporter(StatusBoard(), context.partition))
    with pytest.raises(IncrementsBehind):
        await made.perform(effects.Reenter(last, Warm.KEPT, unbroken=False))


async def test_nor_is_anybody_fenced_for_it(bench):
    """The other owner may be suspended, with the newer state: it must stay the last one to fence."""
    await bench.past()
    context = await said(bench, 2)
    last = await last_now(context)
    assert last is not None
    memory = Memory(context)
    memory.kept = RetainedState(last.increment, last.offset, lineage=Lineage(1, -1))
    with pytest.raises(NothingYet, match="the topic has lost its newest records"):
        await require_no_other_fence(context, memory, asyncio.get_running_loop().time(), insists=False)


async def test_a_lost_end_is_found_before_anybody_is_fenced(bench, monkeypatch):
    """A suspended owner may have the newer state: it is not fenced where all brokers agree on the end."""
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 1.0)
    await bench.past()
    context = await said(bench, 2)

    async def agreed(_cluster, partition):
        return bench.log(partition.topic).end

    monkeypatch.setattr(SimCluster, "agreed_end_offset", agreed)
    before = await context.cluster.last_fence(context.transactional_id)
    status = await bench.failure()
    assert status.error.kind == "IncrementsBehind"
    assert "snapreplay accept" in status.error.hint
    assert await context.cluster.last_fence(context.transactional_id) == before


@pytest.mark.parametrize("is_agreed", [True, False], ids=["before the fence", "after the claim"])
async def test_who_is_failed_for_a_lost_end_stays_so_until_somebody_has_written(bench, monkeypatch, is_agreed):
    """An alert that waits for a minute fires, and the status keeps its hint. No operator has to ask for a retry."""
    await bench.past()
    context = await said(bench, 2)
    if is_agreed:

        async def agreed(_cluster, partition):
            return bench.log(partition.topic).end

        monkeypatch.setattr(SimCluster, "agreed_end_offset", agreed)
    one = await bench.owner()
    await until(lambda: one.status.phase == "failed", "failed", 300.0)
    seen = len(one.phases)
    for _ in range(180):
        await asyncio.sleep(1)
        assert "snapreplay accept" in one.status.error.hint
    assert set(one.phases[seen:]) <= {"failed"}
    bench.broker.group_offsets.pop((witness_group(bench.app.app_id), context.increments))
    async with bench.live():  # takes the log as it is, in this test without a decision
        await bench.feed(10)
        await until(lambda: one.status.phase != "failed", "another recovery")


async def test_a_leader_may_be_stale(bench, monkeypatch):
    """Then the claim must be seen first; with it, the end is certain."""
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 1.0)
    await bench.past()
    await said(bench, 2)
    assert (await bench.failure()).error.kind == "IncrementsBehind"


@pytest.mark.parametrize("error", [NotAuthorized("no"), Unreachable("no"), StopError("no"), TimeoutError()])
async def test_without_an_answer_a_recovery_continues_and_says_so(bench, monkeypatch, caplog, error):
    """The witness is one more proof; what else is proven counts without it."""
    await bench.past()

    async def no_answer(*_):
        raise error

    monkeypatch.setattr(SimCluster, "committed_offsets", no_answer)
    await bench.restored()
    said = [each.getMessage() for each in caplog.records if "it is not known whether" in each.getMessage()]
    assert {line.rpartition(": ")[2] for line in said} == {str(error) or "deadline passed"}

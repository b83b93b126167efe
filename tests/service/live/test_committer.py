"""One transaction per batch: all of it or nothing, the increment last."""

import asyncio

import pytest
from msgspec.structs import replace

from snapreplay.app.fold import Fold
from snapreplay.app.record import Output, RawRecord
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.custody import IncrementsReplaced
from snapreplay.service.core.kafka_errors import CommitInDoubt, Fenced
from snapreplay.service.core.retained import Ending
from snapreplay.service.core.snapshot_policy import Unpointed
from snapreplay.service.live.committer import BUSY_SECONDS, REST_SECONDS_MAX, Committer, ProducerSpent
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.simulation.producer import SimProducer
from tests.support import reference
from tests.support.entries import read_entry


class Bench:
    """A committer as a LIVE partition has it, and records to apply."""

    def __init__(self, here, context, committer, store):
        self.here, self.context, self.committer, self.store = here, context, committer, store
        self.positions = dict(committer.chain.last.positions)
        self.fold = Fold(context.app, store, context.partition)

    def kept(self):
        """Return what is left in memory."""
        return self.committer.kept(Unpointed())

    def feed(self, count):
        """Records that need not exist: what is committed is what was applied."""
        (topic,) = self.positions
        first = self.positions[topic]
        records = [
            RawRecord(topic, 0, n, 1000 + n, f"k{n}".encode(), b'{"amount": 1}') for n in range(first, first + count)
        ]
        self.fold.begin(self.positions)
        self.fold.feed(records)

    def apply(self, count):
        """Feed and seal."""
        self.feed(count)
        return self.finish()

    def finish(self):
        applied = self.fold.finish()
        self.positions |= applied.positions
        return applied

    async def log(self):
        """Kind and value of what is committed in T-ZengLiang."""
        records = (await self.here.read(self.context.increments.topic))[0]
        return [(kind_of(r.value), r.value) for r in records]

    async def outputs(self):
        return reference.ids((await self.here.read(self.context.app.outputs[0].name))[0])


async def committing(here, **tables):
    """Fence in, with the state of batch 0."""
    await here.prepare(**tables)
    context = await here.context()
    recovered = await RecoveryDriver(context, Memory(context), Reporter(StatusBoard(), 0)).recover()
    committer = Committer(context, recovered.store, recovered.producer, recovered.chain)
    return Bench(here, context, committer, recovered.store)


async def test_outputs_changes_and_increment_are_one_transaction(bench):
    """Nothing is visible before the answer; then all of it is, the increment behind its changes."""
    one = await committing(bench)
    before = await one.log()
    applied = one.apply(10)
    one.committer.start(applied)
    assert not one.committer.idle
    committed = await one.committer.settle()
    assert committed.increment.batch == 1
    assert committed.seconds > 0
    (first, changes), (second, increment) = (await one.log())[len(before) :]
    assert (first, second) == (RecordKind.CHANGES, RecordKind.INCREMENT)
    ref = read_entry(increment).changes
    (stores,) = check_changes(ref, [changes])
    assert stores == applied.sealed.changes
    assert len(await one.outputs()) == 10
    assert one.store.digest == read_entry(increment).digest


async def test_a_rest_ends_before_the_answer_is_expected_and_with_it_at_the_latest(bench):
    """Expected is what the last transaction took. Without one under way, or near its end, there is no rest."""
    one, loop = await committing(bench), asyncio.get_running_loop()
    assert not await one.committer.rest(0.0)
    one.committer.start(one.apply(10))
    await one.committer.settle()
    took, began = one.committer.answer_seconds, loop.time()
    assert 0 < took < REST_SECONDS_MAX
    one.committer.start(one.apply(10))
    assert await one.committer.rest(took * 0.5, took * 0.4)
    assert loop.time() - began == pytest.approx(took * 0.1)
    assert not one.committer.answered
    assert not await one.committer.rest(took)
    one.committer.answer_seconds = 1e6
    assert await one.committer.rest(0.0)
    assert one.committer.answered
    assert loop.time() - began < REST_SECONDS_MAX
    await asyncio.sleep(5)
    assert (await one.committer.settle()).seconds < REST_SECONDS_MAX, "the answer ends it, not when it is noted"


async def test_it_is_busy_while_a_commit_is_under_way_and_a_moment_longer(bench, monkeypatch):
    """However long the brokers take to answer."""
    one, commit = await committing(bench), SimProducer.commit
    assert not one.committer.is_busy

    async def slowly(self, *what):
        await asyncio.sleep(2 * BUSY_SECONDS)
        return await commit(self, *what)

    one.committer.start(one.apply(1))
    await one.committer.settle()
    assert one.committer.is_busy
    await asyncio.sleep(BUSY_SECONDS)
    assert not one.committer.is_busy
    monkeypatch.setattr(SimProducer, "commit", slowly)
    one.committer.start(one.apply(1))
    await asyncio.sleep(BUSY_SECONDS)
    assert one.committer.is_busy
    await one.committer.settle()


async def test_large_changes_are_split(bench):
    """Records of 900,000 bytes at most; the increment counts them, and they add up to the changes."""
    one = await committing(bench)
    (topic,) = one.positions
    noise = [bytes((n * k) % 251 for k in range(6000)).hex() for n in range(200)]
    one.fold.begin(one.positions)
    one.store.view.__snapreplay_store__().gate.open()  # as while a handler runs
    one.store.view.update({f"big{n}": {"n": 0, "sum": 0, "noise": text} for n, text in enumerate(noise)})
    one.store.view.__snapreplay_store__().gate.close()
    one.fold.feed([RawRecord(topic, 0, 0, 1000, b"k", b'{"amount": 1}')])
    applied = one.fold.finish()
    one.committer.start(applied)
    await one.committer.settle()
    log = await one.log()
    parts = [value for kind, value in log if kind is RecordKind.CHANGES]
    assert len(parts) > 1
    assert max(map(len, parts)) <= 900_000
    stores = list(check_changes(read_entry(log[-1][1]).changes, parts))
    assert sum(len(s["default"]) for s in stores) == 201


async def test_a_fenced_owner_commits_nothing(bench):
    """Its batch is in doubt and waits in the store for what the log says; nothing of it is to be seen."""
    one = await committing(bench)
    digest = one.store.digest
    newer = await one.context.cluster.fence(one.context.transactional_id)
    one.committer.start(one.apply(10))
    with pytest.raises(Fenced):
        await one.committer.settle()
    assert one.committer.doubt.increment.batch == 1
    assert one.store.digest == one.committer.doubt.increment.digest
    one.store.drop()
    assert one.store.digest == digest
    assert await one.outputs() == []
    await newer.discard()


async def test_what_is_under_way_can_be_given_up(bench):
    """Discarded in the middle: no task is left, and the producer commits nothing any more."""
    one = await committing(bench)
    one.committer.start(one.apply(10))
    await one.committer.discard()
    assert one.committer.idle
    assert one.committer.doubt.increment.batch == 1
    one.committer.start(None)
    with pytest.raises((CommitInDoubt, Fenced)):
        await one.committer.settle()


async def test_a_producer_that_must_be_renewed_starts_nothing_more(bench, monkeypatch):
    """A request went unanswered: its late copy must not meet the next transaction."""
    one = await committing(bench)
    one.committer.check()
    monkeypatch.setattr(SimProducer, "needs_renewal", True)
    with pytest.raises(ProducerSpent, match="KAFKA-17754"):
        one.committer.check()


async def test_a_commit_that_was_cancelled_before_it_began_was_not_asked_for(bench):
    """What the producer says of its last transaction is of the one before."""
    one = await committing(bench)
    one.committer.start(one.apply(3))
    await one.committer.settle()
    others = asyncio.all_tasks()
    one.committer.start(one.apply(3))
    (committing_now,) = asyncio.all_tasks() - others
    committing_now.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one.committer.settle()
    kept = one.kept()
    assert (kept.doubtful.batch, kept.last.batch) == (2, 1)
    assert kept.ending == Ending(asked=False)


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("beyond", [0, 1000])
async def test_an_offset_that_falls_shows_another_log(bench, changes, beyond):
    """The batch is committed and merged, but not behind the one before it. The log lost its last transaction exactly:
    the next one begins where that one began, and its increment may lie beyond the lost one."""
    one = await committing(bench, changelog={"enabled": changes})
    chain, end_offset = one.committer.chain, bench.log(bench.increments).end
    one.committer.chain = replace(chain, last_offset=end_offset + beyond)
    one.committer.start(one.apply(3))
    assert (await one.committer.settle()).increment.batch == 1
    with pytest.raises(IncrementsReplaced, match="was cut, or is another one"):
        one.committer.check()
    await one.committer.discard()
    assert one.kept().replaced


@pytest.mark.parametrize("above", [0, 1])
async def test_an_offset_is_behind_the_last_one(bench, above):
    """A log that has lost exactly its last transaction takes the next one at exactly the same offset."""
    one = await committing(bench)
    offsets = [one.committer.chain.last_offset]
    for _ in range(2):
        one.committer.start(one.apply(3))
        await one.committer.settle()
        offsets.append(one.committer.chain.last_offset)
    begin = 2 * offsets[2] - offsets[1] - 1  # of changes and increment, as those before
    one.committer.chain = replace(one.committer.chain, last_offset=begin - above)
    one.committer.start(one.apply(3))
    await one.committer.settle()
    assert one.committer.chain.last_offset == begin + 1
    assert (one.committer.replaced is None) == bool(above)


async def test_dead_letters_are_sent_behind_the_outputs(bench):
    """Both, in one transaction."""
    one = await committing(bench)
    letters = [Output(bench.dead_letters, b"k", b"bad", None, True, None)]
    one.committer.start(replace(one.apply(3), dead_letters=letters))
    await one.committer.settle()
    assert len(await one.outputs()) == 3
    assert [each.value for each in bench.log(bench.dead_letters).committed()] == [b"bad"]


async def test_after_the_cut_nothing_is_sent(bench):
    """What was sealed meanwhile is in doubt."""
    one = await committing(bench)
    await one.committer.cut()
    with pytest.raises(CommitInDoubt, match="was not sent"):
        one.committer.start(one.apply(2))
    assert one.kept().ending == Ending(asked=False)

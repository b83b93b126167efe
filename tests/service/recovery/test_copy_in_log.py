"""Tests of what a cluster says of a state in memory."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay.app import names
from snapreplay.app.record import Output
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.custody import IncrementsMissing, StateDisputed, Verdict
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import Witness
from snapreplay.service.ports import Bounds, CommittedOffset, LogRecord, NewTopic
from snapreplay.service.recovery import copy_in_log
from snapreplay.service.recovery.copy_in_log import (
    OutputUndecided,
    last_now,
    looked_up,
    resolved,
    restorable,
    topic_ids_for,
)
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory, require_increments
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.envelope import encode, headers_of
from tests.simulation.cluster import SimCluster

NOTHING: dict[str, Any] = {}


def driver(context, memory):
    return RecoveryDriver(context, memory, Reporter(StatusBoard(), context.partition))


async def held(context):
    """A producer, and the memory of an owner of the partition."""
    memory = Memory(context)
    recovered = await driver(context, memory).recover()
    chain, lineage = recovered.chain, recovered.producer.lineage
    memory.kept = RetainedState(chain.last, chain.last_offset, lineage=lineage)
    return recovered.producer, memory


async def owned(context):
    """A producer, and what an owner of the partition would keep in memory."""
    producer, memory = await held(context)
    return producer, memory.kept


async def test_a_log_that_holds_our_last_batch_is_a_copy_of_the_state(bench):
    """The same batch at the same offset; a missing topic, and one that was made again, hold nothing."""
    await bench.past()
    context = await bench.context()
    _producer, kept = await owned(context)
    assert await looked_up(context, kept) is Verdict.SAME
    await require_increments(context, kept)
    bench.broker.delete(bench.increments)
    assert await looked_up(context, kept) is Verdict.ONLY_COPY
    with pytest.raises(IncrementsMissing, match=f"{bench.increments} of app .* was deleted"):
        await require_increments(context, kept)
    await context.cluster.create_topics([NewTopic(bench.increments, 1)])
    assert await looked_up(context, kept) is Verdict.ONLY_COPY


async def test_a_damaged_tail_is_no_copy(bench):
    """The next owner could not continue from it; that is no answer that is missing."""
    await bench.past()
    context = await bench.context()
    producer, kept = await owned(context)
    damaged = bytearray(encode(kept.last))
    damaged[-1] ^= 1
    record = LogRecord(bench.increments, bytes(damaged), headers=headers_of(kept.last))
    await producer.commit(0, (), (record,))
    assert await looked_up(context, kept) is Verdict.ONLY_COPY


@pytest.mark.parametrize("later", [0, 1])
async def test_a_state_is_written_unless_the_witness_tells_of_a_later_batch(bench, later):
    """Another process has committed it, and the log and `__transaction_state` have lost it with their ends."""
    await bench.past()
    context = await bench.context()
    _producer, memory = await held(context)
    kept = memory.kept
    last = msgspec.structs.replace(kept.last, batch=kept.last.batch + later)
    witness = Witness.of(bench.increments, last, kept.last_offset + later)
    told = CommittedOffset(witness.increment_offset, witness.metadata)
    committer = context.cluster.offset_committer(names.witness_group(bench.app.app_id))
    await committer.commit({context.increments: told})
    log = bench.log(bench.increments)
    log.cut(kept.last_offset - 1)
    if later:
        with pytest.raises(StateDisputed, match=f"{bench.increments}-0 does not lead to the state"):
            await driver(context, memory).recover()
    else:
        await driver(context, memory).recover()
    assert (await last_of(bench)).begun_by_owner is not bool(later)


@pytest.mark.parametrize("committed", [True, False])
async def test_an_output_tells_whether_its_batch_was_committed(bench, committed):
    """It is delivered to who reads committed records, or it is not; when it is trimmed or gone this is not known."""
    await bench.past()
    context, topic = await bench.context(), bench.app.outputs[0].name
    place = (topic, 0, bench.log(topic).end)
    if committed:
        producer = await context.cluster.fence(context.transactional_id)
        output = Output(topic, b"k", b"{}", partition=0, same_key=False, timestamp_ms=None)
        await producer.commit(0, (output,), (LogRecord(bench.increments, b"x"),))
        assert producer.ending.output == place
    else:
        bench.open_transaction(context.transactional_id, topic, b"{}")
    await (await context.cluster.fence(context.transactional_id)).discard()
    assert (await resolved(context, place)).committed is committed
    bench.trim(topic, place[2] + 1)
    assert (await resolved(context, place)).committed is None
    bench.broker.delete(topic)
    gone = await resolved(context, place)
    assert (gone.committed, gone.why) == (None, f"topic {topic} no longer exists")


async def test_what_is_committed_into_another_topic_of_the_name_is_no_copy(bench):
    """An owner that does not know yet continues: its increments bear the old id."""
    await bench.past()
    context = await bench.context()
    producer, kept = await owned(context)
    bench.recreate(bench.increments)
    record = LogRecord(bench.increments, encode(kept.last), headers=headers_of(kept.last))
    (offset,) = await producer.commit(0, (), (record,))
    kept = replace(kept, last_offset=offset)
    assert kept.warm(FoundIncrement(kept.last, offset)) is not None  # it looks the same
    assert await looked_up(context, kept) is Verdict.ONLY_COPY


def looks(starts=NOTHING, ends=NOTHING, ids=NOTHING, plain_end=None):
    """A context whose cluster has both own topics, and logs from 0 to 1000 where nothing else is said; `plain_end`: to
    there for who reads what is not committed."""

    async def topic_ids(_):
        return {"incs": "I", "snaps": "new", **ids}

    async def topics(names):
        return names

    async def close():
        return None

    async def reader(read_committed=True, **_):
        async def bounds(target):
            end = ends.get(target.topic, 1000)
            return Bounds(starts.get(target.topic, 0), end if read_committed else plain_end)

        async def bounds_of(targets):
            return {each: await bounds(each) for each in targets}

        return SimpleNamespace(bounds=bounds, bounds_of=bounds_of, close=close)

    return SimpleNamespace(
        cluster=SimpleNamespace(topic_ids=topic_ids, topics=topics, reader=reader),
        increments=SimpleNamespace(topic="incs"),
        snapshots=SimpleNamespace(topic="snaps"),
        input_names=("payments",),
        partition=0,
    )


@pytest.mark.parametrize("plain_end", [50, 51])
async def test_an_output_behind_an_open_transaction_is_asked_for_again(plain_end):
    """Readable up to 40: at 50 it is undecided as long as the topic reaches that far, and else gone."""
    here = looks(ends={"out": 40}, plain_end=plain_end)
    if plain_end > 50:
        with pytest.raises(OutputUndecided, match="can be read up to 40 of 51"):
            await resolved(here, ("out", 0, 50))
    else:
        assert (await resolved(here, ("out", 0, 50))).why == "out-0 ends at 50, but the output was at 50"


async def last_of(bench):
    """The last increment of its log."""
    found = await last_now(await bench.context())
    assert found is not None
    return found.increment


LEAN = {"changelog": {"enabled": False}}


def lose_tail(bench, topic):
    """Lose the tail as an unclean election does: the last record is gone, and others come to lie there."""
    log = bench.log(topic)
    del log.records[-1], log.transactions[-1]
    log.append(None, b"another", (), 0, None)


@pytest.mark.parametrize("lost", ["trimmed", "topic made again", "end lost"])
async def test_a_snapshot_counts_if_its_records_are_where_the_pointer_says(bench, lost):
    """T-ZengLiang does not reach back to the genesis here: without a snapshot, nothing leads to the state."""
    await bench.past()
    context, last = await bench.context(), await last_of(bench)
    bench.trim(bench.increments, last.pointers[0].increment_offset)
    assert await restorable(context, last)
    match lost:
        case "trimmed":
            bench.trim(bench.snapshots, last.pointers[0].manifest_offset)
        case "topic made again":
            bench.recreate(bench.snapshots)
        case _:
            lose_tail(bench, bench.snapshots)
    assert await restorable(context, last) is False


async def test_without_a_snapshot_only_a_whole_log_is_a_copy(bench):
    """From the genesis on; not behind a decision, which only a snapshot has the state of."""
    await bench.past()
    context, last = await bench.context(), await last_of(bench)
    bench.broker.delete(bench.snapshots)
    assert await restorable(context, last)
    assert not await restorable(context, msgspec.structs.replace(last, last_decision_offset=3))
    bench.trim(bench.increments, 1)
    assert not await restorable(context, last)
    kept = RetainedState(last, 7)  # what is not committed can be undone: no need to restore
    assert (await topic_ids_for(context, kept)).restorable


async def test_without_changes_the_inputs_must_reach_back_to_the_genesis(bench):
    """Nothing but a replay restores the state then."""
    await bench.past(**LEAN)
    context, last = await bench.context(**LEAN), await last_of(bench)
    last = msgspec.structs.replace(last, pointers=[])
    assert await restorable(context, last)
    bench.trim(bench.input, 1)
    assert not await restorable(context, last)


async def test_one_lost_answer_is_no_answer_of_all(bench, monkeypatch):
    """A state that was given up for it may be the only copy (simulator seed 1007363)."""
    monkeypatch.setattr(copy_in_log, "LOOK_AGAIN_SECONDS", 0)
    await bench.past()
    context, lost = await bench.context(), iter([Unreachable("no answer within 1 s")])
    ids, last = SimCluster.topic_ids, await last_of(bench)

    async def asked(self, names):
        for error in lost:
            raise error
        return await ids(self, names)

    monkeypatch.setattr(SimCluster, "topic_ids", asked)
    gone = msgspec.structs.replace(last, pointers=[], last_decision_offset=3)
    assert await restorable(context, gone) is False


@pytest.mark.parametrize("lost", ["nothing", "end", "topic", "what a replay needs"])
async def test_a_snapshot_that_only_a_replay_leads_on_from_needs_the_input(bench, lost):
    """Of the topic that was processed, as much of it, and all since the snapshot."""
    await bench.past(**LEAN)
    context, last = await bench.context(**LEAN), await last_of(bench)
    match lost:
        case "end":
            del bench.log(bench.input).records[-1]
        case "topic":
            bench.copy_again(bench.input, 1000)
        case "what a replay needs":
            bench.trim(bench.input, 81)
        case _:
            pass
    assert await restorable(context, last) is (lost == "nothing")

"""T-ZengLiang that is foreign in part, or no chain: named, never guessed at. Any damaged byte: tests/damage."""

from typing import Any

import pytest

from snapreplay.errors import DamagedError
from snapreplay.service.clock import time_of
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, Unreachable
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.refusals import LogCut
from snapreplay.service.core.search import FoundIncrement, SearchWindow
from snapreplay.service.ports import Bounds, LogRecord, TopicPartition
from snapreplay.service.publish.owned import claim_record
from snapreplay.service.topics.increments import (
    decisions_of,
    last_in_window,
    last_increment,
    newer_claim,
    newer_owner,
    raise_superseded,
)
from snapreplay.snapshots.format.envelope import RecordKind, encode
from snapreplay.snapshots.format.records import ChangesRef
from tests.damage.edits import flips
from tests.simulation.reader import SimReader
from tests.support.entries import increment, read_entry
from tests.support.tampering import with_fields

LOG = TopicPartition("app-increments", 0)
FLIP = next(flips())
CHANGES, INCREMENT = RecordKind.CHANGES, RecordKind.INCREMENT


def test_two_damaged_increments_in_a_row_are_bridged(past, recovered):
    """The next one counts them in its batch number; without a snapshot, the genesis may be one of them."""
    damaged = [(INCREMENT, number, FLIP) for number in (6, 5, 1, 0)]
    chunks = [(RecordKind.CHUNK, number, FLIP) for number in (-1, 0)]
    world = past(*damaged, *chunks)
    outcome = recovered(world)
    assert (outcome.error, outcome.entries) == (None, world.entries)
    assert (outcome.restore.mode, outcome.restore.snapshot) == ("changes", None)
    assert outcome.restore.proof.batches_compared == 5


@pytest.mark.parametrize("fields", [{"batch": 6}, {"previous_offset": 3}])
def test_increments_that_do_not_follow_each_other_stop(past, recovered, fields):
    """Two owners wrote at once, or records were removed: both facts are named."""
    world = past((INCREMENT, -2, with_fields(**fields)))
    outcome = recovered(world)
    assert type(outcome.error).__name__ == "BrokenChain"
    assert "predecessor" in outcome.error.message
    assert "snapreplay accept" in outcome.error.hint


def test_fewer_changes_than_their_increment_speaks_of_are_noticed(past, recovered):
    """The count is part of the increment."""
    more = with_fields(changes=ChangesRef(2, 20, 7))
    outcome = recovered(past((INCREMENT, -1, more)))
    assert outcome.restore.mode == "replay"
    assert "names 2 changes records, but before it there are 1" in outcome.restore.fallback_reason


async def test_the_last_increment_is_found_behind_a_long_tail_and_within_bounds(bench):
    """Window by window back to the start of the bounds and not beyond it; foreign records are counted."""
    await bench.past()
    await bench.send([(b"", b"hello")] * 40, LOG.topic)
    reader = await bench.cluster.reader()
    end_offset = (await reader.bounds(LOG)).end_offset
    found = await last_increment(reader, LOG, Bounds(0, end_offset))
    assert found is not None
    assert found.increment.batch == 8
    behind = Bounds(found.offset + 1, end_offset)
    assert await last_increment(reader, LOG, behind) is None
    assert await last_in_window(reader, LOG, SearchWindow(*behind)) is None
    whole = await last_in_window(reader, LOG, SearchWindow(0, end_offset))
    assert whole is not None
    assert whole == found


async def test_the_newest_claim_after_an_offset_is_found(bench, commit):
    """None without a claim since; damaged ones raise."""
    await bench.past()
    reader, context = await bench.cluster.reader(), await bench.context()
    _, last = [await commit(claim_record(context, each)) for each in "ab"]
    newest = await newer_claim(reader, LOG, 0, last + 1)
    assert newest == read_entry(bench.log(LOG.topic).records[last].value)
    assert await newer_claim(reader, LOG, last, last + 1) is None
    bench.tamper(LOG.topic, RecordKind.CLAIM, FLIP)
    with pytest.raises(DamagedError):
        await newer_claim(reader, LOG, 0, last + 1)


async def test_decisions_are_found_from_the_last_increment_back_to_the_logs_start(bench, commit):
    """Newest first, though batches came after them; what was trimmed is not told, and none is the usual case."""
    await bench.past()
    offsets, reader = [-1], await bench.cluster.reader()
    for batch in (9, 11):
        said = {"finding": f"gap-{batch}", "problem": "p", "decided": "d", "reason": "r", "by": "b"}
        decided = increment(batch, decision=said, last_decision_offset=offsets[-1], written_at_ms=batch * 1000)
        offsets.append(await commit(LogRecord(LOG.topic, encode(decided))))
    _, first, second = offsets
    last = FoundIncrement(increment(12, last_decision_offset=second), second + 2)
    found = await decisions_of(reader, LOG, last)
    assert [(each.offset, each.batch) for each in found] == [(second, 11), (first, 9)]
    newest = found[0]
    told = (newest.finding, newest.problem, newest.decided, newest.reason, newest.by, newest.at)
    assert told == ("gap-11", "p", "d", "r", "b", time_of(11_000))
    bench.trim(LOG.topic, first + 1)
    assert await decisions_of(reader, LOG, last) == found[:1]
    assert await decisions_of(reader, LOG, FoundIncrement(increment(12), 99)) == ()


@pytest.fixture
def claimed(bench, commit):
    """`await claimed(instance_id)` is the offset of another claim."""

    async def one(instance_id="one"):
        return await commit(claim_record(await bench.context(instance_id), "c"))

    return one


async def owner(bench, owner_epoch, **known) -> Any:
    """Say who came after; Any, as the test knows whether there is one."""
    return await newer_owner(await bench.context(), owner_epoch, **known)


async def test_the_newest_claim_is_the_owner(bench, claimed):
    """Also when the log before it was trimmed. Without an owner: our transaction may only have timed out."""
    await bench.past()
    mine = await claimed()
    assert await owner(bench, mine) is None
    await claimed("two")
    last = await claimed("three")
    assert (await owner(bench, mine)).instance_id == "three"
    bench.trim(bench.increments, last)
    assert (await owner(bench, mine)).instance_id == "three"
    assert await owner(bench, last) is None


async def test_a_newer_owner_that_has_trimmed_its_claim_is_one_all_the_same(bench, claimed, commit):
    """Found by the simulator (seed 70329): a process that was suspended in its recovery would else take what its
    successor has trimmed for a loss. An owner's own trim makes no process its successor."""
    await bench.past()
    mine, theirs = await claimed(), await claimed("two")
    written = increment(9, owner_epoch=theirs)
    bench.trim(bench.increments, await commit(LogRecord(bench.increments, encode(written))))
    assert "trimmed" in (await owner(bench, mine)).host
    assert await owner(bench, theirs) is None


def stale_leaders(monkeypatch, count, end_offset):
    """The first `count` clients come to a leader whose log ends there; those that came."""
    met: list[None] = []
    bounds = SimReader.bounds

    async def end(reader, partition):
        if len(met) < count:
            met.append(None)
            return Bounds(0, end_offset)
        return await bounds(reader, partition)

    monkeypatch.setattr(SimReader, "bounds", end)
    return met


@pytest.mark.parametrize("knows_our_claim", [False, True])
async def test_a_leader_that_does_not_know_what_was_committed_is_not_believed(
    bench, claimed, monkeypatch, knows_our_claim
):
    """Found by the simulator: a recovery that was suspended took its successor's snapshot for the proof that increments
    were lost, because a stale leader knew of no successor (seed 109724). It may know our own claim (seed 302471): a
    snapshot names its increment, and a process that lacks that cannot say that there is no successor."""
    await bench.past()
    mine, theirs = await claimed(), await claimed("two")
    met = stale_leaders(monkeypatch, 3, mine + knows_our_claim)
    cut = LogCut("a later snapshot", hint="", increment_offset=theirs)
    error = cut if knows_our_claim else Unreachable("no answer")
    with pytest.raises(Superseded) as found:
        await raise_superseded(await bench.context(), mine, error)
    assert found.value.newer.instance_id == "two"
    assert len(met) == 3


async def test_what_no_broker_knows_any_more_is_gone(bench, claimed):
    """Then the log was cut, and there is no newer owner."""
    await bench.past()
    mine = await claimed()
    assert await owner(bench, mine, known_offset=mine + 1000) is None


async def test_when_no_broker_knows_our_own_claim_the_log_could_not_be_asked(bench, claimed, monkeypatch):
    """No answer is not "no owner"; both offsets are named."""
    await bench.past()
    mine = await claimed()
    stale_leaders(monkeypatch, 1_000_000, mine)
    with pytest.raises(OffsetBeyondEnd, match=f"ends at {mine}, but the claim of this process is at {mine}"):
        await owner(bench, mine)

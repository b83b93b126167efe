"""Tests of which state can be stood on; the ways themselves: tests/attacks, B3."""

import pytest

from snapreplay.app.names import witness_group
from snapreplay.service.decisions.accept import NoBaseline, propose
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import Genesis, Paused
from snapreplay.state.digest import Digest
from tests.support.accepting import REASON, accepted, proposed
from tests.support.tampering import flip, with_fields


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        (RecordKind.CHUNK, flip, "crc32"),
        (RecordKind.MANIFEST, with_fields(genesis=Genesis("elsewhere", 1, {"payments": 0})), "elsewhere"),
    ],
)
async def test_a_snapshot_that_is_not_whole_or_not_ours_is_passed_over(bench, kind, change, reason):
    """The one before it counts, and the plan says why not the newest."""
    then = await bench.past()
    bench.tamper(bench.snapshots, kind, change)
    bench.recreate(bench.increments)
    status = await bench.failure()
    proposal, _ = await accepted(bench, status.error.hint)
    assert f"snapshot {then.second} (manifest at offset" in proposal.plan[0]
    assert reason in proposal.plan[0]
    assert f"that of snapshot {then.first}, of batch 2 (20 entries" in proposal.plan[1]
    async with bench.live() as one:
        await one.position(120)
        assert one.view()["k0"]["n"] == 6


async def test_without_a_whole_snapshot_nothing_can_be_accepted(bench):
    """Lost increments and damaged snapshots: refused with each reason, and what remains."""
    await bench.past()
    for number in (-1, -2):
        bench.tamper(bench.snapshots, RecordKind.CHUNK, flip, number)
    bench.recreate(bench.increments)
    status = await bench.failure()
    assert "snapreplay accept" not in status.error.hint
    with pytest.raises(NoBaseline) as refused:
        await propose(bench.app, bench.settings(), bench.cluster, 0, "any", REASON)
    assert refused.value.message.count("is skipped") == 2
    assert "snapreplay init" in refused.value.hint


async def test_what_was_dropped_and_a_pause_are_still_known_after_an_older_state_was_accepted(bench):
    """What the last increment records: its fields, or a version that has a dropped one would not be refused; its pause,
    or the partition would continue by itself."""
    await bench.past()
    pause = Paused(1_000, "repairs")
    wrong = with_fields(fields={"default": ["-mail", "n", "sum"]}, digest=Digest(20, 1, 1), paused=pause)
    bench.tamper(bench.increments, RecordKind.INCREMENT, wrong)
    status = await bench.failure()
    proposal, _ = await accepted(bench, status.error.hint)
    assert "the state becomes that of snapshot" in proposal.plan[0]
    assert "-mail" in bench.batches()[-1].fields["default"]
    assert bench.batches()[-1].paused == pause


async def test_what_is_accepted_continues_behind_every_batch_that_was_committed(bench):
    """The increments lost their last batches, and only the witness tells: the same loss is not found a second time."""
    await bench.prepare()
    async with bench.live() as one:
        for _ in range(3):
            await one.feed(1)
        await one.context.witnesses.end(bench.cluster.offset_committer(witness_group(bench.app.app_id)))
    committed = bench.batches()[-1].batch
    batches = (e for e in bench.log(bench.increments).committed() if is_increment(e))
    _, _, second, *_ = (record.offset for record in batches)
    bench.broker.lose(TopicPartition(bench.increments, 0), second - 1, 0, None)
    status = await bench.failure()
    assert status.error.kind == "IncrementsBehind"
    _, begun = await accepted(bench, status.error.hint)
    assert begun.increment.batch > committed


async def test_an_input_that_was_made_again_with_the_increments_is_named_in_the_plan(bench):
    """No anchor is left to compare. Of a copy the offset means the same, of another topic 80 records are passed over:
    the plan says so, and says nothing of it where the input is the same topic."""
    await bench.past()
    bench.recreate(bench.increments)
    same = await proposed(bench, (await bench.failure()).error.hint)
    bench.recreate(bench.input)
    await bench.feed(200)
    other = await proposed(bench, (await bench.failure()).error.hint)
    told = f"topic {bench.input} was deleted and created again"
    assert (told in str(same.plan), told in str(other.plan)) == (False, True)
    assert "nothing is left that shows whether offset 80 means the same in it" in other.decision["decided"]


def is_increment(record):
    return kind_of(record.value or b"") is RecordKind.INCREMENT

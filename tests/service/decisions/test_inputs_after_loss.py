"""A change of the inputs decides nothing about a log that has lost its end: its batch would have the number of the lost
one, and nothing would show the loss any more."""

import pytest

from snapreplay.app.names import witness_group
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.decisions.inputs import Wish, carry_out, propose
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support.in_memory import virtual
from tests.support.rewired import sums


@virtual
async def test_a_lost_batch_that_only_the_witness_knows_is_not_hidden_by_a_change(bench):
    """The last batch is gone, with its claim and all; the owner says so before and after the refused command."""
    one, two = sums("late", "a"), sums("late", "a", "b")
    await bench.prepare(one)
    bench.broker.create("b-late", 1)
    async with bench.live() as owner:
        for count in (1, 2):
            await bench.send([("k0", count)], "a-late")
            await owner.position(count, "a-late")
        await owner.context.witnesses.end(bench.cluster.offset_committer(witness_group(bench.app.app_id)))
    log = bench.log(bench.increments)
    last = [each.offset for each in log.committed() if kind_of(each.value or b"") is RecordKind.INCREMENT][-1]
    bench.broker.lose(TopicPartition(bench.increments, 0), last - 1, 0, None)
    (proposed,) = await propose(two, bench.settings(), bench.cluster, Wish("earliest"))
    before = bench.batches()
    with pytest.raises(IncrementsBehind, match="the topic has lost its end"):
        await carry_out(proposed)
    assert bench.batches() == before
    assert (await bench.failure()).error.kind == "IncrementsBehind"

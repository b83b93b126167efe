"""A change of the inputs decides nothing about a log that has lost its end: its batch would have the number of the lost
one, and nothing would show the loss any more."""

from contextlib import asynccontextmanager

import pytest

from snapreplay.app.names import witness_group
from snapreplay.service.core.refusals import HangingTransaction
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.decisions.inputs import Wish, carry_out, propose
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support.rewired import sums


@asynccontextmanager
async def with_an_end_to_lose(bench, one):
    """Yield an owner that has processed two records and committed the witness, and the call that loses its last batch,
    with the claim."""
    await bench.prepare(one)
    bench.broker.create("b-late", 1)
    async with bench.live() as owner:
        for count in (1, 2):
            await bench.send([("k0", count)], "a-late")
            await owner.position(count, "a-late")
        await owner.context.witnesses.end(bench.cluster.offset_committer(witness_group(bench.app.app_id)))
        log = bench.log(bench.increments)
        last = [each.offset for each in log.committed() if kind_of(each.value or b"") is RecordKind.INCREMENT][-1]
        yield owner, lambda: bench.broker.lose(TopicPartition(bench.increments, 0), last - 1, 0, None)


async def test_a_refused_change_leaves_its_owner_the_way_to_write_what_it_has_in_memory(bench):
    """The command fences no one: else the owner would not be the last one to have fenced, and its state, the only copy,
    would be disputed."""
    one, two = sums("late", "a"), sums("late", "a", "b")
    async with with_an_end_to_lose(bench, one) as (owner, lose):
        lose()
        (proposed,) = await propose(two, bench.settings(), bench.cluster, Wish("earliest"))
        with pytest.raises(IncrementsBehind, match="the topic has lost its newest records"):
            await carry_out(proposed)
        await bench.send([("k0", 3)], "a-late")
        await owner.position(3, "a-late")
        assert "this state was the only copy" in str(bench.batches()[-2].decision)


async def test_a_lost_batch_that_only_the_witness_knows_is_not_hidden_by_a_change(bench):
    """The last batch is gone, with its claim and all; the owner says so before and after the refused command."""
    one, two = sums("late", "a"), sums("late", "a", "b")
    async with with_an_end_to_lose(bench, one) as (_, lose):
        pass
    lose()
    (proposed,) = await propose(two, bench.settings(), bench.cluster, Wish("earliest"))
    before = bench.batches()
    with pytest.raises(IncrementsBehind, match="the topic has lost its newest records"):
        await carry_out(proposed)
    assert bench.batches() == before
    assert (await bench.failure()).error.kind == "IncrementsBehind"


async def test_a_batch_that_a_foreign_transaction_hides_is_no_loss(bench):
    """The hint would be to restore the topic from a backup, of a log that is whole."""
    one, two = sums("late", "a"), sums("late", "a", "b")
    await bench.prepare(one)
    bench.broker.create("b-late", 1)
    async with bench.live() as owner:
        bench.open_transaction("foreign", bench.increments, b"of another program")
        await bench.send([("k0", 1)], "a-late")
        await owner.position(1, "a-late")
        await owner.context.witnesses.end(bench.cluster.offset_committer(witness_group(bench.app.app_id)))
    (proposed,) = await propose(two, bench.settings(), bench.cluster, Wish("earliest"))
    with pytest.raises(HangingTransaction):
        await carry_out(proposed)

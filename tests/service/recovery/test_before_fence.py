"""Tests of what is asked before a partition is fenced."""

from dataclasses import replace

import pytest

from snapreplay.service.core.owners import NotAssigned
from snapreplay.service.core.retained import Ending
from snapreplay.service.ports import LogRecord, NewTopic
from snapreplay.service.recovery.before_fence import nobody_since, require_given
from snapreplay.service.recovery.memory import Memory
from tests.service.recovery.test_copy_in_log import held
from tests.support.in_memory import virtual


@virtual
async def test_who_has_fenced_since_is_known_without_the_log(bench):
    """Also when T-ZengLiang is gone with all claims."""
    await bench.past()
    context = await bench.context()
    _producer, memory = await held(context)
    unknown = Memory(context, kept=replace(memory.kept, lineage=None))
    assert await nobody_since(context, memory)
    assert not await nobody_since(context, unknown)
    bench.broker.delete(bench.increments)
    assert await nobody_since(context, memory)
    await context.cluster.create_topics([NewTopic(bench.increments, 1)])
    theirs = await context.cluster.fence(context.transactional_id)
    await theirs.commit(0, (), (LogRecord(bench.increments, b"claim"),))
    assert not await nobody_since(context, memory)


@virtual
async def test_a_fence_of_ours_whose_answer_was_lost_is_known_by_what_it_has_ended(bench):
    """A transaction that is never asked to commit was seen open: the fence that ends it raises the epoch by two."""
    await bench.past()
    context = await bench.context()
    _producer, memory = await held(context)
    bench.open_transaction(context.transactional_id, bench.output, b"{}")
    ours = (await context.cluster.last_fence(context.transactional_id)).lineage
    memory.kept = replace(memory.kept, lineage=ours, ending=Ending(asked=False))
    assert await nobody_since(context, memory)
    await (await context.cluster.fence(context.transactional_id)).discard()
    assert await nobody_since(context, memory)
    assert not await nobody_since(context, Memory(context, kept=memory.kept))
    await (await context.cluster.fence(context.transactional_id)).discard()
    assert not await nobody_since(context, memory)


class Nobodys:
    """A group that gives us nothing."""

    async def is_assigned_to_us(self, partition):
        return partition < 0


@virtual
async def test_whom_the_group_does_not_give_the_partition_fences_nobody(bench):
    """Without a group the log alone decides."""
    context = await (await bench.past()).here.context()
    await require_given(context)
    with pytest.raises(NotAssigned, match="partition 0"):
        await require_given(replace(context, group=Nobodys()))

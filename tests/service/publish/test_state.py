"""Beginning a chain anew, from a state that only this process has."""

from typing import Any

import msgspec
import pytest

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.publish.snapshot_writer import ImageDiffers
from snapreplay.service.publish.state import begin_anew
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.report import Reporter
from snapreplay.state.store import store_of
from tests.support.in_memory import virtual

DECISION = {"finding": "test-1", "problem": "p", "decided": "d", "reason": "r", "by": "b"}


async def owner_of(context: Any) -> Any:
    """Return the owner of a partition: what its recovery hands over, its store and its reporter."""
    reporter = Reporter(StatusBoard(), context.partition)
    recovered = await RecoveryDriver(context, Memory(context), reporter).recover()
    return recovered, recovered.store, reporter


@virtual
async def test_the_next_owner_starts_from_the_snapshot_and_walks_over_nothing_before(bench):
    """The increment follows the claim, bears the decision and the ids given, and points to one snapshot of the state:
    a recovery finds exactly that."""
    await bench.past()
    context = await bench.context()
    owned, store, reporter = await owner_of(context)
    standing = msgspec.structs.replace(owned.chain.last, topic_ids={"there": "now"})
    epoch = owned.chain.owner_epoch
    try:
        begun = await begin_anew(
            context, owned.producer, epoch, store, standing, DECISION, reporter
        )
    finally:
        await owned.producer.discard()
    assert (begun.increment.batch, begun.increment.previous_offset) == (9, epoch)
    assert begun.increment.decision == DECISION
    assert begun.increment.topic_ids == {"there": "now"}
    assert [p.snapshot_id for p in begun.increment.pointers] == [begun.snapshot_id]
    again, restored, shown = await owner_of(await bench.context())
    await again.producer.discard()
    assert (again.chain.last, again.chain.last_offset) == (begun.increment, begun.offset)
    assert restored.digest == store.digest
    assert shown.status.restore.snapshot.snapshot_id == begun.snapshot_id


@virtual
async def test_a_state_that_is_not_the_named_one_is_never_published(bench):
    """The snapshot's own digest is held against that of the increment it is said to be of."""
    await bench.past()
    context = await bench.context()
    owned, _, reporter = await owner_of(context)
    another, before = store_of(context.app.state()), await bench.read(bench.increments)
    try:
        with pytest.raises(ImageDiffers):
            await begin_anew(
                context,
                owned.producer,
                owned.chain.owner_epoch,
                another,
                owned.chain.last,
                DECISION,
                reporter,
            )
    finally:
        await owned.producer.discard()
    assert await bench.read(bench.increments) == before

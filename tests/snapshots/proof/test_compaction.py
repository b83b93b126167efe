"""A snapshot of what the service's own code wrote in memory."""

from functools import reduce

import pytest

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.snapshots.format.chunks import sums_of
from snapreplay.snapshots.jobs.compaction import NotCompactable, Outcome, folded
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores
from tests.damage import memory
from tests.snapshots.proof.test_replay import Logs, now
from tests.support.audited_log import Fault, flipped
from tests.support.compacting import assert_good, audited, compacted, told


def made(world):
    """The state after the last batch."""
    state = folded(world.app.app_id, now(world), Logs(world))
    assert state is not None
    return state


def test_without_changes_the_owner_takes_the_snapshots():
    """Only a replay leads to the state."""
    with pytest.raises(NotCompactable, match="recorded no changes"):
        made(memory.world(changes=False))


def several():
    """Sums and counts, each in a store of its own."""
    payments, balances = Topic("payments-memory"), Topic("balances-memory")
    app = App(
        "memory",
        inputs=[payments],
        outputs=[balances],
        state=lambda: Stores(sums=MapState(str, int), counts=MapState(str, int)),
    )

    @app.handler(payments)
    def on_payment(record, state, out):
        state.sums[record.key] = state.sums.get(record.key, 0) + record.value["amount"]
        state.counts[record.key] = state.counts.get(record.key, 0) + 1
        out.send(balances, key=record.key, value=state.counts[record.key])

    return app


def test_each_store_has_chunks_of_its_own():
    """Each with its own digest."""
    state = made(memory.world(app=several()))
    found: dict[str, Digest] = {}
    while slices := all_of(state.cursor.slicing(900_000)):
        sums = [sums_of(each) for each in slices]
        found[state.cursor.store] = reduce(Digest.plus, sums, found.get(state.cursor.store, EMPTY))
    assert found == state.found.increment.store_digests
    assert found.keys() == {"counts", "sums"}


def test_an_increment_that_cannot_be_read_is_bridged():
    """As in a recovery: the next one names it, and its digest shows that no change is missing. The result has its
    offset, and the audit still reports it."""
    story = told({0: Fault("batch3", values=lambda v: [*v[:-1], flipped(v[-1])])})
    result = compacted(story)[0]
    damaged = story.partitions[0].written["batch3"][-1]
    assert (result.outcome, result.bridged) == (Outcome.PROPOSED, [damaged])
    assert_good(story)
    assert [each.offset for each in audited(story).findings] == [damaged]

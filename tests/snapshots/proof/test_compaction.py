"""A snapshot by replay, of what the service's own code wrote in memory: see `test_replay`."""

import pytest

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.errors import StopError
from snapreplay.snapshots.format.envelope import RecordKind, decode
from snapreplay.snapshots.format.records import Chunk
from snapreplay.snapshots.jobs.compaction import Outcome
from snapreplay.snapshots.proof.compaction import NotCompactable, chunk_records, folded, target_of
from snapreplay.snapshots.proof.replay import ReplayDiffers, replayed, segments
from snapreplay.snapshots.proof.state import At, last_batch
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores
from tests.damage import memory
from tests.snapshots.proof.test_replay import Logs, edited, now, proved, spoilt
from tests.support import apps
from tests.support.audited_log import Fault, flipped
from tests.support.compacting import assert_good, audited, compacted, told
from tests.support.entries import stated_digest


def made(world, app=None):
    """Target and state."""
    logs, moment = Logs(world), now(world)
    target = target_of(moment, logs)
    assert target is not None
    app = app or world.app
    return target, folded(app.app_id, moment, logs, target, app)


def without_app(world):
    logs, moment = Logs(world), now(world)
    target = target_of(moment, logs)
    assert target is not None
    folded("memory", moment, logs, target, None)


def digest_of_chunks(cursor):
    total = EMPTY
    for value in chunk_records("s", cursor, 900_000):
        chunk = decode(value)
        assert isinstance(chunk, Chunk)
        total = total.plus(stated_digest(chunk).in_store(chunk.store))
    return total


def test_without_changes_the_handlers_lead_to_the_state():
    """From the newest snapshot on; the digest after the last batch is the recorded one."""
    world = memory.world(changes=False)
    with pytest.raises(NotCompactable, match="recorded no changes") as refused:
        without_app(world)
    assert "name the app" in refused.value.hint
    target, state = made(world)
    assert state.by_replay
    assert state.base == target.found.increment.pointers[0]
    assert digest_of_chunks(state.cursor) == target.found.increment.digest


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


@pytest.mark.parametrize("changes", [True, False])
def test_each_store_has_chunks_of_its_own(changes):
    """By recorded changes and by a replay."""
    target, state = made(memory.world(app=several(), changes=changes))
    assert state.by_replay is not changes
    found: dict[str, Digest] = {}
    for value in chunk_records("s", state.cursor, 900_000):
        chunk = decode(value)
        assert isinstance(chunk, Chunk)
        found[chunk.store] = found.get(chunk.store, EMPTY).plus(stated_digest(chunk))
    assert found == target.found.increment.store_digests
    assert found.keys() == {"counts", "sums"}


def test_with_changes_no_handler_runs():
    """Even where they would do something else."""
    _, state = made(memory.world(), apps.ledger("memory", spoilt))
    assert not state.by_replay


def test_other_handlers_lead_to_no_snapshot():
    """The batch is named."""
    world, other = memory.world(changes=False), apps.ledger("memory", spoilt)
    with pytest.raises(ReplayDiffers, match=r"batch 7 replays differently: other outputs"):
        made(world, other)
    findings = [report.finding for report in proved(world, other)]  # as the hint says
    assert findings[-1] is not None
    assert "code changed" in findings[-1].detail


def test_an_input_that_was_trimmed_leads_to_no_snapshot():
    """It is said which one."""
    world = memory.world(changes=False)
    log = world.log("payments-memory")
    log.start = log.end
    with pytest.raises((NotCompactable, StopError), match="payments-memory"):
        made(world)


def test_a_state_that_is_no_map_is_compacted_up_to_its_last_digest():
    """Nothing would prove a later one; without any since the newest snapshot there is no proposal."""
    world = memory.world(app=apps.tape("memory"))
    last = last_batch(now(world), Logs(world), At())
    assert last is not None
    store = replayed(world.app, segments(now(world), last)[-1], Logs(world))
    digest = all_of(store.digesting())
    hashed = edited(world.copy(), RecordKind.INCREMENT, -1, digest=digest)
    target, state = made(hashed)
    assert (target.found.increment.batch, state.by_replay) == (8, True)
    assert digest_of_chunks(state.cursor) == digest
    with pytest.raises(NotCompactable, match="recorded a digest"):
        target_of(now(world), Logs(world))


def test_an_increment_that_cannot_be_read_is_bridged():
    """As in a recovery: the next one names it, and its digest shows that no change is missing. The result has its
    offset, and the audit still reports it."""
    story = told({0: Fault("batch3", values=lambda v: [*v[:-1], flipped(v[-1])])})
    result = compacted(story)[0]
    damaged = story.partitions[0].written["batch3"][-1]
    assert (result.outcome, result.bridged) == (Outcome.PROPOSED, [damaged])
    assert_good(story)
    assert [each.offset for each in audited(story).findings] == [damaged]

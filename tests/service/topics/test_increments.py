"""T-ZengLiang that is foreign in part, or no chain: named, never guessed at. Any damaged byte: tests/damage."""

import pytest

from snapreplay.errors import DamagedError
from snapreplay.service.core.search import SearchWindow
from snapreplay.service.ports import Bounds, TopicPartition
from snapreplay.service.publish.claim import claim_record
from snapreplay.service.topics.increments import last_in_window, last_increment, newer_claim
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import ChangesRef
from tests.damage.edits import flips
from tests.support.entries import read_entry
from tests.support.in_memory import virtual
from tests.support.tampering import with_fields

LOG = TopicPartition("app-increments", 0)
FLIP = next(flips())
CHANGES, INCREMENT = RecordKind.CHANGES, RecordKind.INCREMENT


def test_a_damaged_increment_before_the_snapshot_is_not_needed(past, recovered):
    """What the snapshot covers is not read again."""
    outcome = recovered(past((INCREMENT, 1, FLIP)))
    assert (outcome.error, outcome.restore.fallback_reason) == (None, None)


def test_two_damaged_increments_in_a_row_are_bridged(past, recovered):
    """The next one counts them in its batch number; without a snapshot, the genesis may be one of them."""
    damaged = [(INCREMENT, number, FLIP) for number in (6, 5, 1, 0)]
    chunks = [(RecordKind.CHUNK, number, FLIP) for number in (-1, 0)]
    world = past(*damaged, *chunks)
    outcome = recovered(world)
    assert (outcome.error, outcome.entries) == (None, world.entries)
    assert (outcome.restore.mode, outcome.restore.snapshot) == ("changes", None)
    assert outcome.restore.proof.batches_compared == 5


def test_damage_with_the_changes_of_the_next_batch_closes_both_modes(past, recovered):
    """Replay needs the ranges of the increment that is damaged, and of the bridge one half is gone."""
    outcome = recovered(past((INCREMENT, -2, FLIP), (CHANGES, -1, FLIP)))
    assert type(outcome.error).__name__ == "NoRestoreMode"
    assert "memory-increments-0 offset" in outcome.error.message
    assert outcome.error.hint


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


@virtual
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
    assert await last_in_window(reader, LOG, SearchWindow(*behind, 0)) is None
    whole = await last_in_window(reader, LOG, SearchWindow(0, end_offset, 0))
    assert whole is not None
    assert (whole.offset, whole.foreign_records) == (found.offset, 40)


@virtual
async def test_the_newest_claim_after_an_offset_is_found(bench, commit):
    """None when nobody claimed since; damaged ones raise."""
    await bench.past()
    reader, context = await bench.cluster.reader(), await bench.context()
    _, last = [await commit(claim_record(context, each)) for each in "ab"]
    newest = await newer_claim(reader, LOG, 0, last + 1)
    assert newest == read_entry(bench.log(LOG.topic).records[last].value)
    assert await newer_claim(reader, LOG, last, last + 1) is None
    bench.tamper(LOG.topic, RecordKind.CLAIM, FLIP)
    with pytest.raises(DamagedError):
        await newer_claim(reader, LOG, 0, last + 1)

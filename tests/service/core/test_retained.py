"""Tests of what is left in memory, held against what the log says."""

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from snapreplay.app.ranges import InputRange, SkippedRange
from snapreplay.service.core.retained import RetainedState, Warm
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.snapshot_policy import Unpointed
from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.digest import Digest
from tests.support.entries import entries, increment, pointer

LAST = increment(8, owner_epoch=7, digest=Digest(2, 3, 4), pointers=[pointer(5)])
DOUBTFUL = increment(
    9,
    owner_epoch=7,
    previous_offset=20,
    ranges=[InputRange("payments", 0, 7, 6)],
    record_count=6,
    digest=Digest(3, 5, 6),
    pointers=[pointer(5)],
)
LONG_AGO = Unpointed(4, -290.0, -290.0)
KEPT = RetainedState(LAST, 20, DOUBTFUL, unpointed=Unpointed(4))


def test_the_batch_in_doubt_is_merged_when_the_log_ends_with_it():
    """It was committed; its records count from now on."""
    found = FoundIncrement(DOUBTFUL, 31)
    assert KEPT.warm(found) is Warm.MERGED
    assert KEPT.after(found) == RetainedState(DOUBTFUL, 31, None, unpointed=Unpointed(10))


@pytest.mark.parametrize(
    "of",
    [
        {"ranges": [], "record_count": 0, "fired_count": 6},
        {"record_count": 0, "skipped": [SkippedRange("payments", 0, 7)]},
    ],
    ids=["timers", "skipped"],
)
def test_what_no_snapshot_has_is_counted_also_without_an_applied_record(of):
    """Timers and expiry change the state, and positions move over what was skipped. Else a snapshot that somebody asks
    for would be skipped, as nothing had been applied."""
    doubtful = msgspec.structs.replace(DOUBTFUL, **of)
    kept = replace(KEPT, doubtful=doubtful, unpointed=Unpointed())
    assert kept.after(FoundIncrement(doubtful, 31)).unpointed == Unpointed(6)


def test_the_batch_in_doubt_is_dropped_when_the_log_ends_before_it():
    """It was not committed, and after the fence it cannot be any more."""
    found = FoundIncrement(LAST, 20)
    assert KEPT.warm(found) is Warm.DROPPED
    assert KEPT.after(found) == replace(KEPT, doubtful=None)


def test_nothing_in_doubt_leaves_the_state_as_it_is():
    """The producer was to be renewed, or a broker was away: the state is what was committed."""
    kept = replace(KEPT, doubtful=None)
    assert kept.warm(FoundIncrement(LAST, 20)) is Warm.KEPT
    assert kept.after(FoundIncrement(LAST, 20)) == kept


@pytest.mark.parametrize("of", [LAST, DOUBTFUL])
@pytest.mark.parametrize(
    "changed",
    [
        {"owner_epoch": 8},
        {"batch": 10},
        {"digest": Digest(9, 9, 9)},
        {"previous_offset": 19},
        {"positions": {"payments": 1, "refunds": 7}},
        {"written_at_ms": 99},
        {"decision": {"finding": "gap"}},
    ],
    ids=str,
)
def test_any_other_increment_needs_a_restore(of, changed):
    """Another owner, batch, digest, decision, or the same batch at another time: not what is in memory."""
    other = msgspec.structs.replace(of, **changed)
    assert KEPT.warm(FoundIncrement(other, 31)) is None
    assert KEPT.warm(FoundIncrement(other, 20)) is None


def test_the_same_increment_elsewhere_in_the_log_is_another_one():
    """The log was re-created, or somebody wrote it again."""
    assert KEPT.warm(FoundIncrement(LAST, 21)) is None


def test_a_fallback_is_kept_until_it_is_recorded_and_a_new_snapshot_is_pointed_to():
    """The damage is still there for the next full restore."""
    kept = replace(KEPT, fallback_from="s7", unpointed=Unpointed(4, fell_back=True))
    dropped = kept.after(FoundIncrement(LAST, 20))
    assert (dropped.fallback_from, dropped.unpointed.fell_back) == ("s7", True)
    recorded = kept.after(FoundIncrement(DOUBTFUL, 31))
    assert (recorded.fallback_from, recorded.unpointed.fell_back) == (None, True)
    pointing = msgspec.structs.replace(DOUBTFUL, pointers=[pointer(8), pointer(5)])
    ended = replace(kept, doubtful=pointing).after(FoundIncrement(pointing, 31))
    assert (ended.fallback_from, ended.unpointed.fell_back) == (None, False)
    damaged = Unpointed(4, fell_back=True, mended_from_batch=9)
    adopted = replace(kept, doubtful=pointing, unpointed=damaged)  # of a batch before the damage
    assert adopted.after(FoundIncrement(pointing, 31)).unpointed.fell_back


def test_an_increment_that_has_lost_all_pointers_ends_nothing():
    """The snapshots topic was created again: there is no snapshot at all, and one is wanted at once."""
    bare = msgspec.structs.replace(DOUBTFUL, pointers=[])
    kept = replace(KEPT, doubtful=bare, unpointed=replace(LONG_AGO, fell_back=True))
    merged = kept.after(FoundIncrement(bare, 31))
    assert merged.unpointed == replace(LONG_AGO, records=10, fell_back=True)


def test_a_doubt_does_not_restart_the_interval_of_snapshots():
    """Unless the batch in doubt pointed to one."""
    kept = replace(KEPT, unpointed=LONG_AGO)
    for found in (FoundIncrement(LAST, 20), FoundIncrement(DOUBTFUL, 31)):
        assert kept.after(found).unpointed.pointed_at == -290.0
    pointing = msgspec.structs.replace(DOUBTFUL, pointers=[pointer(8), pointer(5)])
    assert replace(kept, doubtful=pointing).after(FoundIncrement(pointing, 31)).unpointed.pointed_at == 0.0


@given(entries([Increment]))
def test_an_increment_read_back_equals_what_was_sent(sent):
    """Without it nothing would ever be merged: what is compared has been through the codec once."""
    assert decode(encode(sent)) == sent

"""Tests of when a full snapshot is due."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay.service.core.snapshot_policy import (
    Objective,
    SinceSnapshot,
    SnapshotPolicy,
    Speed,
    snapshot_due,
    within_retention,
)


def due(policy, records, elapsed_ms, partition=0):
    return snapshot_due(policy.of("app", partition), SinceSnapshot(records, elapsed_ms))


def test_whichever_comes_first_is_the_reason():
    """Records and interval, exactly at their value."""
    policy = SnapshotPolicy(100, 5000, 0.0)
    assert due(policy, 99, 4999) is None
    assert due(policy, 100, 4999) == "records"
    assert due(policy, 99, 5000) == "interval"


def test_nothing_is_due_when_nothing_changed():
    """An idle partition writes no snapshot, however old the last one is."""
    assert due(SnapshotPolicy(1, 1, 0.0), 0, 10**9) is None


@given(st.integers(1, 10**6), st.floats(0, 0.5), st.integers(0, 1000))
def test_jitter_shortens_by_its_ratio_at_most(every, ratio, partition):
    """Never later than told, never earlier than the ratio allows."""
    policy = SnapshotPolicy(every, None, ratio)
    assert due(policy, every, 0, partition) == "records"
    early = int(every * (1 - ratio)) - 1
    assert early <= 0 or due(policy, early, 0, partition) is None


DAY_MS = 86_400_000


def test_snapshots_come_often_enough_for_a_replay():
    """A quarter of the shortest retention at most, also when the rule by time is off; a tighter rule stays."""
    for every_ms in (None, DAY_MS):
        assert within_retention(SnapshotPolicy(10, every_ms, 0.1), 400, 3).every_ms == 100
    tight = SnapshotPolicy(None, 99, 0.1)
    assert within_retention(tight, 400, 3) == tight
    assert within_retention(tight, None, 3) == tight
    assert within_retention(SnapshotPolicy(None, None, 0.0), 0, 3).every_ms == 1


@given(st.integers(2, 100), st.integers(1000, 10**10))
def test_the_oldest_kept_snapshot_is_younger_than_the_retention(kept, retention_ms):
    """As many intervals as are kept, and a part of one more, fit into it."""
    every_ms = within_retention(SnapshotPolicy(None, None, 0.0), retention_ms, kept).every_ms
    assert every_ms is not None
    assert kept * every_ms < retention_ms
    assert every_ms <= retention_ms / 4


# ---- the objective -----------------------------------------------------------------------------

FAST = Speed(0.2, 1e6, 1e4)  # a second per megabyte, and per 10,000 records


def objective(seconds=3.0, size_bytes=1_000_000, write_seconds=0.5, speed=FAST):
    return Objective(seconds, speed, size_bytes, write_seconds)


def asked(since, of):
    return snapshot_due(SnapshotPolicy(None, None, 0.0), since, of)


def at(records, elapsed_ms, batch_records=0, **more):
    return SinceSnapshot(
        records, elapsed_ms, per_second=records / elapsed_ms * 1000, batch_records=batch_records, **more
    )


def test_the_objective_is_due_before_a_restore_would_take_longer():
    """0.2 s, a second of loading, and two thirds of 1.8 s for 12,000 records. What comes while it is written counts
    already, and the next batch. The first one of an ownership need not wait."""
    at_10_000_a_second = [at(n * 1000 + 300, n * 100 + 30, 1000) for n in range(1, 30)]
    first = next(each for each in at_10_000_a_second if asked(each, objective()) == "objective")
    assert first.elapsed_ms == 2030, "the floor: four times the time of writing"
    quick = objective(write_seconds=0.1)
    first = next(each for each in at_10_000_a_second if asked(each, quick) == "objective")
    assert first.records == 10_300
    assert asked(at(9_000, 1100, 1000), quick) is None
    assert asked(at(9_000, 1100, 5000), quick) == "objective"
    assert asked(SinceSnapshot(12_100, 0, is_first=True), quick) == "objective"
    assert asked(SinceSnapshot(11_900, 0, is_first=True), quick) is None


def test_nothing_is_due_without_records_and_little_without_hope():
    """A snapshot of an unchanged state would help nothing. Where loading takes too long, a restore takes twice as long
    at most."""
    assert asked(SinceSnapshot(0, 10**9, batch_records=5000), objective(seconds=0.5)) is None
    hopeless = objective(size_bytes=3_800_000)
    assert not hopeless.is_reachable
    assert asked(SinceSnapshot(40_000, 10**9), hopeless) is None
    assert asked(SinceSnapshot(40_001, 10**9), hopeless) == "objective"


@given(
    st.floats(0.5, 60.0),
    st.floats(1, 1e6),
    st.integers(0, 10**8),
    st.floats(0.01, 5.0),
    st.integers(1, 5000),
    st.integers(1, 20),
)
@settings(max_examples=50)
def test_an_owner_that_follows_the_rule_keeps_the_objective(seconds, arrival, size_bytes, write, batch, per_second):
    """By its own model: batches at a steady rate, a snapshot takes as long as said. At each moment the prediction is
    within the limit, unless snapshots would take more than their share of the time: then they keep to it."""
    of, marks, missed = objective(seconds, size_bytes, write), [0.0], False
    batch = max(1, min(batch, round(arrival / per_second)))
    step_seconds = batch / arrival
    now, records, unpointed, pointed_at = 0.0, 0, 0, -1.0
    for _ in range(2000):
        now, records, unpointed = now + step_seconds, records + batch, unpointed + batch
        if 0 <= pointed_at <= now:
            unpointed, pointed_at = records, -1.0
        missed = missed or of.predicted(unpointed) > of.limit_seconds * (1 + 1e-9)
        since = at(records, max(1, int((now - marks[-1]) * 1000)), batch)
        if pointed_at < 0 and asked(since, of):
            marks.append(now)
            records, pointed_at = 0, now + write
    gaps = [(after - before) * 1000 for before, after in pairwise(marks)]
    assert all(gap >= of.floor_ms - 1 for gap in gaps)
    assert len(gaps) <= 2000 * step_seconds * 1000 / of.floor_ms + 1, "no endless loop"
    most = arrival * (of.floor_ms / 1000 + write + 2 * step_seconds) + 2 * batch
    assert not (missed and of.predicted(most) <= of.limit_seconds)

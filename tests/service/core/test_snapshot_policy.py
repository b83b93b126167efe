"""Tests of when a full snapshot is due."""

from hypothesis import given
from hypothesis import strategies as st

from snapreplay.service.core.snapshot_policy import (
    SinceSnapshot,
    SnapshotPolicy,
    safety_net,
    snapshot_due,
    within_retention,
)


def due(policy, records, elapsed_ms, partition=0):
    return snapshot_due(policy, SinceSnapshot(records, elapsed_ms), "app", partition)


def test_whichever_comes_first_is_the_reason():
    """Records and interval, exactly at their value."""
    policy = SnapshotPolicy(100, 5000, 0.0)
    assert due(policy, 99, 4999) is None
    assert due(policy, 100, 4999) == "records"
    assert due(policy, 99, 5000) == "interval"


def test_a_rule_that_is_off_never_fires():
    """None switches a rule off."""
    assert due(SnapshotPolicy(None, None, 0.0), 10**9, 10**9) is None
    assert due(SnapshotPolicy(10, None, 0.0), 9, 10**9) is None
    assert due(SnapshotPolicy(None, 10, 0.0), 10**9, 9) is None


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


def test_jitter_spreads_partitions():
    """Partitions of one process do not all write at once."""
    policy = SnapshotPolicy(1000, None, 0.5)
    first_due = {next(n for n in range(1, 1001) if due(policy, n, 0, partition)) for partition in range(16)}
    assert len(first_due) > 10


def test_the_safety_net_is_three_intervals():
    """A rule that is off stays off."""
    assert safety_net(SnapshotPolicy(100, 5000, 0.1)) == SnapshotPolicy(300, 15_000, 0.1)
    assert safety_net(SnapshotPolicy(None, None, 0.1)) == SnapshotPolicy(None, None, 0.1)


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

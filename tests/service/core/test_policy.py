"""When a full snapshot is due."""

from hypothesis import given
from hypothesis import strategies as st

from snapreplay.service.core.policy import SinceSnapshot, SnapshotPolicy, snapshot_due


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
    first_due = {
        next(n for n in range(1, 1001) if due(policy, n, 0, partition)) for partition in range(16)
    }
    assert len(first_due) > 10

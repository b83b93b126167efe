"""Tests whether a recovery now would find its way, for every state of the logs."""

from typing import Any

import pytest

from snapreplay.service.core.recoverability import Recoverability, Seen, outlook
from snapreplay.snapshots.plan import LogStarts
from tests.support.entries import increment, pointer

P30, P20, P10 = pointer(30), pointer(20), pointer(10)
POINTED = {"s30": {"payments": 300}, "s20": {"payments": 200}, "s10": {"payments": 160}}


def seen(start: int, by_replay: bool = True, **changed: Any) -> Seen:
    """The input begins at `start`, batch 40 covers it up to 400; snapshots end at 300, 200 and 160."""
    last = increment(40, pointers=[P30, P20, P10], positions={"payments": 400, "refunds": 7})
    increments, snapshots = changed.pop("logs", (1, 0))
    fields: dict[str, Any] = {
        "last": last,
        "last_offset": 122,
        "starts": LogStarts(increments, snapshots, {"payments": start, "refunds": 0}),
        "pointed": POINTED,
        "by_replay": by_replay,
    }
    return Seen(**(fields | changed))


@pytest.mark.parametrize(
    ("start", "snapshot", "recoverable"),
    [
        (0, False, True),  # never cut: nothing is coming nearer
        (80, False, True),  # 80 of 320 offsets are left before the oldest: a quarter
        (81, True, True),
        (160, True, True),  # the oldest is still whole
        (170, True, True),  # the oldest is lost, the next one is not
        (300, True, True),  # only the newest is left
        (301, True, False),  # none is
        (400, True, False),
    ],
)
def test_what_is_deleted_behind_us_asks_for_a_snapshot_in_time(start, snapshot, recoverable):
    """Within a quarter of the oldest kept snapshot a new one is wanted; past the newest it is an alarm as well."""
    found = outlook(seen(start))
    assert (found.snapshot_now is not None, found.missing is None) == (snapshot, recoverable)
    if not recoverable:
        assert found.even_unchanged
        assert f"begins at offset {start}" in (found.missing or "")


@pytest.mark.parametrize("start", [81, 170, 301, 400])
def test_with_changes_the_input_behind_us_is_not_needed(start):
    """Recovery folds what the increments hold: no snapshot is asked for, no alarm is raised."""
    assert outlook(seen(start, by_replay=False)) == Recoverability(None, None)


@pytest.mark.parametrize("by_replay", [True, False])
def test_what_is_not_processed_yet_is_needed_by_both_modes(by_replay):
    """A snapshot does not bring it back, so none is asked for."""
    found = outlook(seen(401, by_replay))
    assert found.snapshot_now is None
    assert "begins at offset 401, but the next record to process is at 400" in (found.missing or "")


@pytest.mark.parametrize("by_replay", [True, False])
@pytest.mark.parametrize(
    ("logs", "recoverable"),
    [
        ((93, 300), True),  # exactly what the newest needs
        ((94, 0), False),  # the record after its increment is gone, on T-ZengLiang
        ((93, 301), False),  # its first chunk is
    ],
)
def test_our_own_topics_are_looked_at_too(logs, recoverable, by_replay):
    """Somebody trimmed them by hand: the state in memory is the only one, so it is written at once."""
    found = outlook(seen(0, by_replay, logs=logs))
    assert (found.missing is None) == recoverable
    assert (found.snapshot_now is None) == recoverable
    assert found.even_unchanged != recoverable


def test_losing_the_newest_snapshot_is_repaired_while_an_older_one_is_left():
    """Recoverable, but from further behind than it says: even an unchanged state is written again."""
    missing = {**POINTED}
    del missing["s30"]
    found = outlook(seen(0, pointed=missing))
    assert found.missing is None
    assert found.even_unchanged
    assert "s30" in (found.snapshot_now or "")


def test_before_the_first_snapshot_the_genesis_is_the_way():
    """By replay only as long as the input is whole; by changes as long as our log is."""
    last = increment(3, positions={"payments": 40, "refunds": 7})
    for start, by_replay, way in ((0, True, True), (1, True, False), (1, False, True)):
        found = outlook(seen(start, by_replay, last=last, last_offset=12, logs=(0, 0)))
        assert (found.missing is None) == way
        assert (found.snapshot_now is None) == way
    trimmed = outlook(seen(0, last=last, last_offset=12, logs=(1, 0)))
    assert trimmed.missing is not None

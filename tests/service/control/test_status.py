"""Statuses: what they work out by themselves, and the board."""

import pytest

from snapreplay.service.clock import time_of
from snapreplay.service.control.status import DigestProof, PartitionStatus, Progress, RecoveryStatus, StatusBoard
from snapreplay.service.core.phase import Phase

AT = time_of(7_000)


@pytest.mark.parametrize(
    ("progress", "percent", "remaining"),
    [
        (Progress("bytes", 0, 25, 100), 25.0, 75),
        (Progress("records", 100, 150, 200), 50.0, 50),
        (Progress("records", 100, 250, 200), 100.0, 0),
        (Progress("records", 100, 50, 200), 0.0, 150),
        (Progress("bytes", 0, 0, 0), 100.0, 0),
    ],
)
def test_progress_is_a_percentage_of_its_own_span(progress, percent, remaining):
    """Never below 0 or above 100; nothing to do is done."""
    assert (progress.percent, progress.remaining) == (percent, remaining)


@pytest.mark.parametrize(
    ("phase", "percent"),
    [
        (Phase.FENCING, 0.0),
        (Phase.LOADING, 20.0),
        (Phase.ADVANCING, 70.0),
        (Phase.LIVE, 100.0),
        (Phase.FAILED, None),
        (Phase.FENCED, None),
    ],
)
def test_loading_is_one_half_of_the_way_and_advancing_the_other(phase, percent):
    """The same 40 % of a phase are 20 or 70 % of the way; who failed is not on the way."""
    restore = RecoveryStatus(1, AT, progress=Progress("bytes", 0, 40, 100))
    assert PartitionStatus(0, phase, restore=restore).restored_percent == percent


@pytest.mark.parametrize(
    ("phase", "finished_at", "shown"),
    [
        (Phase.ADVANCING, None, True),
        (Phase.LIVE, AT, True),
        (Phase.FAILED, None, True),
        (Phase.FAILED, AT, False),
        (Phase.FENCING, AT, False),
    ],
)
def test_a_proof_is_of_the_state_that_is_there_now(phase, finished_at, shown):
    """One that failed after it was LIVE shows no proof of the restore before."""
    restore = RecoveryStatus(1, AT, finished_at=finished_at, proof=DigestProof("1:a:b", "1:a:b", 3))
    assert (PartitionStatus(0, phase, restore=restore).proof is not None) is shown


def test_the_board_holds_the_newest_of_each_partition_by_number():
    """Listeners hear every change, in order."""
    board = StatusBoard()
    heard: list[PartitionStatus] = []
    board.subscribe(heard.append)
    published = [PartitionStatus(n, Phase.LIVE, batch=batch) for n, batch in ((2, 1), (0, 1), (2, 2))]
    for status in published:
        board.publish(status)
    assert [(s.partition, s.batch) for s in board.all()] == [(0, 1), (2, 2)]
    assert heard == published
    board.forget(2)
    board.forget(7)
    assert board.get(2) is None
    assert [s.partition for s in board.all()] == [0]

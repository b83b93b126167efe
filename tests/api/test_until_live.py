"""Tests how long it takes until all partitions are live, by the pace of those that are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from snapreplay.api import views
from snapreplay.api.cli import restore_view
from snapreplay.service.control.status import PartitionStatus, RecoveryStatus
from snapreplay.service.core.phase import Phase
from tests.support.fake_control import alone

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def partitions(ended: list[float], waiting: int, began: float = 0.0) -> list[PartitionStatus]:
    """Live partitions by when their restores ended, then those that wait for a turn since `began`."""
    live = [
        PartitionStatus(number, Phase.LIVE, restore=RecoveryStatus(1, at(0), at(seconds)))
        for number, seconds in enumerate(ended)
    ]
    return live + [
        PartitionStatus(len(ended) + number, Phase.LOCATING, restore=RecoveryStatus(1, at(began)))
        for number in range(waiting)
    ]


@pytest.mark.parametrize(
    ("ended", "waiting", "eta_seconds"),
    [
        ([2, 4, 6], 10, 20.0),
        ([5, 2, 3], 10, 15.0),
        ([2, 4], 10, None),
        ([2, 2, 2], 10, None),
        ([1, 21, *range(22, 32)], 10, 10.0),
        ([2, 4, 6], 0, None),
        ([], 1, None),
    ],
    ids=["two seconds each", "in any order", "too few", "no pace", "the last ten", "all live", "none"],
)
def test_those_that_wait_take_their_turns(ended, waiting, eta_seconds):
    """As fast as those before them, from the third one on."""
    summary = views.restore_status(alone(partitions(ended, waiting))).summary
    assert summary.eta_seconds == eta_seconds


def test_an_earlier_restore_says_nothing():
    """It ended before any of those that wait began."""
    later = partitions([2, 4, 6, 103, 104, 105], 10, began=100)
    assert views.restore_status(alone(later)).summary.eta_seconds == 10.0
    assert views.restore_status(alone(partitions([2, 4, 6], 10, began=100))).summary.eta_seconds is None


def test_a_partition_that_is_only_assigned_waits_as_well():
    """And one that failed does not."""
    others = [PartitionStatus(8, Phase.ASSIGNED), PartitionStatus(9, Phase.FAILED)]
    assert views.restore_status(alone(partitions([2, 4, 6], 1) + others)).summary.eta_seconds == 4.0


def test_nothing_is_on_its_way():
    """Without partitions, too."""
    assert views.seconds_until_live([]) is None


def test_the_command_says_it():
    """Behind the percentage."""
    status = msgspec.to_builtins(views.restore_status(alone(partitions([2, 4, 6], 3))))
    assert restore_view.summary(status) == "3 live, 3 locating; 50.0 %; all live in about 6 s"

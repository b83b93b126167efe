"""A partition's failures in the log."""

import asyncio
import logging

import pytest

from snapreplay.errors import StopError
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.runtime.failure_log import Failures

LOST = Unreachable("no broker", hint="is it there?")


@pytest.fixture
def bench(monkeypatch, caplog):
    """Failures of partition 3, the lines so far, and time that only the test moves."""
    caplog.set_level(logging.INFO)
    now = [1000.0]

    class Loop:
        def time(self):
            return now[0]

    monkeypatch.setattr(asyncio, "get_running_loop", Loop)

    def lines():
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    return Failures(3), lines, now


def test_what_is_tried_again_is_said_once_and_summed_up(bench):
    """The hint only the first time; and a line when it is over."""
    failures, lines, now = bench
    for _ in range(8):
        failures.retried(LOST)
        now[0] += 10.0
    failures.over()
    failures.over()
    assert lines() == [
        ("WARNING", "partition 3: Unreachable: no broker (is it there?); trying again"),
        (
            "WARNING",
            "partition 3: Unreachable: no broker (repeated 6 times in the last 60 s); trying again",
        ),
        (
            "INFO",
            "partition 3: recovered after 8 failures in 80.0 s, the last one Unreachable: no broker",
        ),
    ]


def test_another_cause_is_said_at_once(bench):
    """Whatever was said before."""
    failures, lines, _ = bench
    failures.retried(LOST)
    failures.retried(Unreachable("no leader"))
    failures.retried(LOST)
    assert len(lines()) == 2


def test_failed_is_said_with_its_class_and_its_hint(bench):
    """Without the hint where all partitions have it in common."""
    failures, lines, _ = bench
    error = StopError("partitions were added", hint="a new app id")
    failures.final(error, is_told=False)
    failures.final(error, is_told=True)
    failures.final(ZeroDivisionError("division by zero"), is_told=False)
    assert [line for _, line in lines()] == [
        "partition 3 FAILED: StopError: partitions were added (a new app id)",
        "partition 3 FAILED: StopError: partitions were added",
        "partition 3 FAILED: ZeroDivisionError: division by zero",
    ]

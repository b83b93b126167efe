"""Tests of what the log says of dead letters."""

import logging
from types import SimpleNamespace

import pytest

from snapreplay.errors import RecordError, RecordId
from snapreplay.service.live.live_report import DeadLetterLog


def failed(offset, exception="KeyError", topic="payments"):
    record_id = RecordId(topic, 3, offset)
    return RecordError(f"{record_id}: handler raised {exception}: {offset}", record_id=record_id, exception=exception)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    loop = SimpleNamespace(time=lambda: now.seconds)
    monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
    return now


def test_the_first_of_a_kind_is_shown_and_the_others_are_counted(clock, caplog):
    """Their texts differ, and would fill the log; another exception or topic is another kind."""
    log = DeadLetterLog(3)
    with caplog.at_level(logging.WARNING):
        log.committed([failed(7), failed(8), failed(9, "ValueError"), failed(10, topic="more")])
        for offset in range(20, 120):
            log.committed([failed(offset)])
        clock.seconds = 61.0
        log.committed([failed(500)])
    assert [record.message for record in caplog.records] == [
        "partition 3: dead letter: payments-3-7: handler raised KeyError: 7",
        "partition 3: dead letter: payments-3-9: handler raised ValueError: 9",
        "partition 3: dead letter: more-3-10: handler raised KeyError: 10",
        "partition 3: dead letter: payments-3-500: handler raised KeyError: 500 (repeated 102 times in the last 61 s)",
    ]


NOW_MS, DAY_MS = 2_000_000_000_000, 86_400_000


def said(caplog):
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if "moved stream time" in r.msg]
    caplog.clear()
    return lines

"""Dead letters of committed batches, against the limits in the settings."""

from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.service.live.dead_letter_limit import DeadLetterCheck, DeadLetterLimitReached
from tests.support.stage import settings_for

SETTINGS = settings_for("localhost:9", errors={"dead_letters_consecutive_max": 3})


def batch(applied: int, skipped: int) -> Any:
    return SimpleNamespace(record_count=applied, dead_letters=[None] * skipped)


def check() -> DeadLetterCheck:
    context: Any = SimpleNamespace(settings=SETTINGS, partition=3)
    return DeadLetterCheck(context)


def test_too_many_in_a_row_stop_the_partition() -> None:
    """Over batches; the error names the partition and how many."""
    counted = check()
    counted.check(batch(0, 2))
    with pytest.raises(DeadLetterLimitReached, match="partition 3: 4 ") as raised:
        counted.check(batch(0, 2))
    assert "deploy a fixed handler" in raised.value.hint


def test_one_that_was_applied_begins_the_row_anew() -> None:
    """As many as before, with one in between."""
    counted = check()
    for _ in range(3):
        counted.check(batch(0, 2))
        counted.check(batch(1, 0))

"""Wall time."""

import time

from snapreplay.service.clock import wall_ms, wall_seconds


def test_both_are_unix_time():
    """In seconds and in milliseconds."""
    before = time.time()
    seconds, milliseconds = wall_seconds(), wall_ms()
    assert before <= seconds <= time.time()
    assert int(before * 1000) <= milliseconds <= time.time() * 1000
    assert isinstance(milliseconds, int)

"""Wall time, and time since the start of the machine."""

import time

from snapreplay.service.clock import boot_seconds, wall_ms, wall_seconds


def test_both_are_unix_time():
    """In seconds and in milliseconds."""
    before = time.time()
    seconds, milliseconds = wall_seconds(), wall_ms()
    assert before <= seconds <= time.time()
    assert int(before * 1000) <= milliseconds <= time.time() * 1000
    assert isinstance(milliseconds, int)


def test_the_sleep_of_the_machine_counts():
    """It is the clock that goes on while the machine is suspended; the loop's does not."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boot_seconds() <= time.clock_gettime(time.CLOCK_BOOTTIME)

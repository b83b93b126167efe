"""Time, in one place. Durations come from the event loop's own clock, unless the machine's sleep must count."""

from __future__ import annotations

import time


def wall_seconds() -> float:
    """Unix time in seconds."""
    return time.time()


def wall_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def boot_seconds() -> float:
    """Seconds since the machine was started, its sleep included. Never set back.

    CLOCK_MONOTONIC, which event loops use, stands still while the machine is suspended; wall time can be set.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)

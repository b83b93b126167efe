"""Wall time, in one place. Durations come from the event loop's own clock."""

from __future__ import annotations

import time


def wall_seconds() -> float:
    """Unix time in seconds."""
    return time.time()


def wall_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000

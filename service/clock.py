"""Time, in one place. Durations come from the event loop's own clock, unless the machine's sleep must count."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_FIRST_MS = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1000
_LAST_MS = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1000


def wall_time() -> datetime:
    return datetime.now(UTC)


def time_of(unix_ms: int) -> datetime:
    """Return this Unix time in UTC; the nearest one for what no calendar has, as a damaged record may hold."""
    return datetime.fromtimestamp(min(max(unix_ms, _FIRST_MS), _LAST_MS) / 1000, UTC)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def boot_seconds() -> float:
    """Return the seconds since the machine was started, its sleep included. Never set back.

    CLOCK_MONOTONIC, which event loops use, stands still while the machine is suspended; wall time can be set.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)

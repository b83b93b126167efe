"""Time, in one place. Durations come from the event loop's own clock, unless the machine's sleep must count."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta

JUMP_MS = 5_000
"""A clock that is set by less follows the corrections of NTP."""

log = logging.getLogger("snapreplay")

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
    """Return the seconds since the machine was started, its sleep included; CLOCK_MONOTONIC, which event loops use,
    stops then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """The time of day of one process. A machine clock that is set ahead counts only as far as timestamps of records
    confirm it, for what happens early cannot be undone. One that is set back counts at once."""

    def __init__(self) -> None:
        self._ahead_ms = wall_ms() - _boot_ms()  # of the time since the machine was started
        self._jump_ms = 0  # that the log has a line about

    def now_ms(self, confirmed_ms: int) -> int:
        """Return the time of day, milliseconds since the epoch. `confirmed_ms`: the highest timestamp of a record."""
        boot_ms, shown_ms = _boot_ms(), wall_ms()
        confirmed_ms = min(confirmed_ms, shown_ms)
        jump_ms = shown_ms - boot_ms - self._ahead_ms
        if abs(jump_ms) < JUMP_MS:
            self._ahead_ms += jump_ms
        elif confirmed_ms > boot_ms + self._ahead_ms:
            self._ahead_ms = confirmed_ms - boot_ms
        jump_ms = shown_ms - boot_ms - self._ahead_ms
        self._tell(jump_ms)
        return min(shown_ms, boot_ms + self._ahead_ms)

    def _tell(self, jump_ms: int) -> None:
        if abs(jump_ms - self._jump_ms) < JUMP_MS:
            return
        self._jump_ms = jump_ms
        by = timedelta(seconds=round(abs(jump_ms) / 1000))
        if jump_ms >= JUMP_MS:
            log.warning(
                "the clock of this machine was set %s ahead. On quiet input stream time follows the previous clock"
                " until records have later timestamps. If the new time is right, restart this process",
                by,
            )
        elif jump_ms <= -JUMP_MS:
            log.warning(
                "the clock of this machine was set back by %s: on quiet input, stream time does not advance until the"
                " clock has reached it again",
                by,
            )
        else:
            log.info("the clock of this machine is right again: it agrees with the elapsed time")


def _boot_ms() -> int:
    return int(boot_seconds() * 1000)

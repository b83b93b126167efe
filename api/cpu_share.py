"""The share of a core that requests take where CPU is short, so that they do not slow down the service."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

SHARE = 0.25
BURST_SECONDS = 0.25
"""Of CPU, before requests rest: some pages of a browser."""
COST_SECONDS_MAX = 0.05
"""Of CPU, the most that one request is charged with: event streams, which have a bound of their own, run beside it."""
INTERVAL_SECONDS = 0.25
"""Between two looks whether CPU is short."""
SHORT_FROM = 0.2
"""CPU is short if this thread waits for a core for more than so many seconds for each one in which it runs."""

Spent = Callable[[], tuple[float, float]]
"""Returns the seconds in which this thread ran, and waited for a core."""


class CpuShare:
    """Says how long requests rest so that they take `SHARE` of a core at most. A thread that need not wait for a core
    takes nothing from anybody, and its requests do not rest."""

    def __init__(self, spent: Spent | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._spent, self._clock = spent or of_this_thread(), clock
        self._at, (self._ran, self._waited) = clock(), self._spent()
        self._looked_at, self._looked = self._at, (self._ran, self._waited)
        self._is_short = False
        self._spare_seconds = BURST_SECONDS

    def rest_seconds(self) -> float:
        """Return how long no request may begin, after one that has begun."""
        now, (ran, waited) = self._clock(), self._spent()
        cost = min(ran - self._ran, COST_SECONDS_MAX)
        self._spare_seconds = min(BURST_SECONDS, self._spare_seconds + SHARE * (now - self._at)) - cost
        self._at, self._ran = now, ran
        self._look(now, ran, waited)
        if not self._is_short:
            self._spare_seconds = BURST_SECONDS
        return max(0.0, -self._spare_seconds / SHARE)

    def _look(self, now: float, ran: float, waited: float) -> None:
        if now - self._looked_at >= INTERVAL_SECONDS:
            ran_before, waited_before = self._looked
            self._is_short = waited - waited_before > SHORT_FROM * (ran - ran_before)
            self._looked_at, self._looked = now, (ran, waited)


def of_this_thread() -> Spent:
    """Read what Linux knows. Elsewhere, or without CONFIG_SCHED_INFO, nobody is known to wait."""
    with suppress(OSError):
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

        def spent() -> tuple[float, float]:
            ran_ns, waited_ns, _ = os.pread(file, 64, 0).split()
            return int(ran_ns) / 1e9, int(waited_ns) / 1e9

        return spent
    return lambda: (time.thread_time(), 0.0)

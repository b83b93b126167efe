"""The pace of a LIVE partition: the size of the next batch, and what is due while there is none to commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from snapreplay.service.clock import SteadyClock
from snapreplay.service.core.batch_failures import BatchBisection
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.state.composite import Store

SLOW_SECONDS = 1.0  # applied for longer: the next batch could outlast the deadline of a commit
ALONE_BATCHES = 16  # after a doubt
QUIET_SECONDS = 1.0
TURN_SECONDS = 60.0
"""No stale leader hides a record for longer: the record whose turn has begun is not there any more."""
IDLE_POLL_MS = 100  # bounds how late a snapshot that is due by time begins; all other work wakes the loop


class Idle(NamedTuple):
    """How long one of many partitions waits for records when nothing is under way: each look takes the others 0.2 ms
    of CPU."""

    ms_per_partition: int
    most_ms: int

    def poll_ms(self, partitions: int) -> int:
        """Return the wait of one of so many."""
        return max(IDLE_POLL_MS, min(self.ms_per_partition * partitions, self.most_ms))


WAITED_FOR = Idle(5, 1000)  # it has an input to read or a time to follow, or something waits for it
QUIET = Idle(50, 10_000)  # a snapshot may become due
AT_REST = Idle(300, 60_000)  # all that can happen wakes it


class Pace:
    """The size of batches: small after a failure, then doubled with each commit up to `batch.records_max`.

    Attributes:
        records_max: of the next batch.
        apply_seconds: the expected time to apply a batch: that of the last one, or half the expectation before it.
    """

    def __init__(self, records_max: int, on_applied: Callable[[float], None]) -> None:
        """Take `on_applied`, which gets the seconds that each batch took to be applied."""
        self._limit = self.records_max = records_max
        self._on_applied = on_applied
        self.apply_seconds = 0.0
        self._caution = BatchBisection()
        self._alone_batches = 0

    @property
    def is_alone(self) -> bool:
        """Whether no transaction may be in progress while a handler runs."""
        return self._alone_batches > 0

    def careful(self, caution: BatchBisection, positions: Mapping[str, int], next_batch: int) -> None:
        """Slow down after a commit that failed, perhaps because of the batch."""
        self._alone_batches = ALONE_BATCHES
        self._caution = caution
        self.records_max = caution.limit_at(positions, next_batch) or self.records_max

    def applied(self, seconds: float) -> None:
        """Note that a batch was applied in this time."""
        self._on_applied(seconds)
        self.apply_seconds = max(seconds, self.apply_seconds / 2)
        if seconds > SLOW_SECONDS:
            self._alone_batches = max(self._alone_batches, 2)

    def committed(self, positions: Mapping[str, int], next_batch: int) -> None:
        """Note that a batch was committed; the next one has this number and begins at `positions`."""
        self._alone_batches = max(0, self._alone_batches - 1)
        careful_limit = self._caution.limit_at(positions, next_batch)
        self.records_max = careful_limit or min(2 * self.records_max, self._limit)


class AtWork:
    """Calls back once when a batch was committed, or none was to commit for a second: a partition that failed at a
    record meets it again in its first turn."""

    def __init__(self, batch: int) -> None:
        """Take `batch`, the last one that was committed before."""
        self._batch, self._began = batch, asyncio.get_running_loop().time()
        self._tell: Callable[[], None] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the callback is still to come."""
        return self._tell is not None

    def then(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the partition is at work."""
        self._tell = tell

    def look(self, batch: int, *, idle: bool) -> None:
        """Check after a turn. `batch` was committed last; `idle`: no transaction is in progress."""
        if self._tell is None:
            return
        quiet = asyncio.get_running_loop().time() - self._began > QUIET_SECONDS
        if batch > self._batch or (quiet and idle):
            tell, self._tell = self._tell, None
            tell()


class IdleTime:
    """Stream time on quiet input: it follows the time of day at a distance, where something is due."""

    def __init__(self, store: Store, idle_advance_ms: int, clock: SteadyClock) -> None:
        """Take the distance, which is also how long the input must have been quiet; 0: stream time does not move."""
        self._store = store
        self._clock = clock
        self._distance_ms = idle_advance_ms if store.timetable is not None else 0
        self.restart()

    @property
    def is_followed(self) -> bool:
        """Whether something may become due while no record comes."""
        return bool(self._distance_ms)

    def restart(self) -> None:
        """Start the quiet time again: there is a record, or may be an unfetched one."""
        self._quiet_since = asyncio.get_running_loop().time()

    async def reached(self, *, turn_has_begun: bool = False) -> int | None:
        """Return the time up to which something is due, if anything is. A turn that has begun waits for its record."""
        timetable, store = self._store.timetable, self._store
        quiet_seconds = asyncio.get_running_loop().time() - self._quiet_since
        if not self._distance_ms or timetable is None or store.stream_time_ms < 0:
            return None
        if quiet_seconds * 1000 < self._distance_ms or (turn_has_begun and quiet_seconds < TURN_SECONDS):
            return None
        to_ms = max(self._clock.now_ms(store.stream_time_ms) - self._distance_ms, store.stream_time_ms)
        not_before_ms = timetable.not_before_ms
        if not_before_ms is None or not_before_ms > to_ms:
            return None
        event = await run_cooperatively(timetable.finding(to_ms))
        return None if event is None else to_ms

"""Stream time on quiet input: where it may go without a record."""

from __future__ import annotations

import asyncio

from snapreplay.service.clock import wall_ms
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.state.contract import Store


class IdleTime:
    """The clock of one LIVE incarnation. On quiet input, stream time follows the clock of this machine at a
    distance, and only where something is due: what is recorded is what happened."""

    def __init__(self, store: Store, idle_advance_ms: int) -> None:
        """Take `idle_advance_ms`: the distance, and how long the input must have been quiet; 0: stream time stands."""
        self._store = store
        self._distance_ms = idle_advance_ms if store.timetable is not None else 0
        self._quiet_since = asyncio.get_running_loop().time()

    def heard(self) -> None:
        """Note that there was a record, or that there may be one that was not fetched yet."""
        self._quiet_since = asyncio.get_running_loop().time()

    async def reached(self) -> int | None:
        """Return the time up to which something is due; None: nothing, or not yet."""
        timetable, store = self._store.timetable, self._store
        quiet_seconds = asyncio.get_running_loop().time() - self._quiet_since
        if not self._distance_ms or timetable is None or store.stream_time_ms < 0:
            return None
        if quiet_seconds * 1000 < self._distance_ms:
            return None
        to_ms = max(wall_ms() - self._distance_ms, store.stream_time_ms)
        not_before_ms = timetable.not_before_ms
        if not_before_ms is None or not_before_ms > to_ms:
            return None
        event = await run_cooperatively(timetable.finding(to_ms))
        return None if event is None else to_ms

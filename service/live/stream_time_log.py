"""Logs where stream time jumps: one record with a wrong timestamp lets everything happen that is due up to then."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from snapreplay.app.batch import Applied
from snapreplay.counted import counted
from snapreplay.service.clock import wall_ms
from snapreplay.service.core.repeats import Repeats
from snapreplay.state.contract import Store

log = logging.getLogger("snapreplay.partition")

AHEAD_MS = 3_600_000
"""So far ahead of the clock brokers refuse a record since Kafka 4.0, unless the topic allows more."""

JUMP_MS = 86_400_000
"""A day without any record is normal for few inputs, and for none that timers of minutes depend on."""


class StreamTimeLog:
    """Of one ownership, of a state with timers or entries that expire."""

    def __init__(self, partition: int, store: Store) -> None:
        self._partition, self._store = partition, store
        self._before_ms = store.stream_time_ms
        self._ahead = False
        self._said = Repeats()

    def committed(self, applied: Applied, batch: int) -> None:
        """Ahead of the clock it is said once, until it is behind again."""
        before_ms, now_ms = self._before_ms, applied.stream_time_ms
        self._before_ms = now_ms
        if self._store.timetable is None or now_ms <= before_ms:
            return
        clock_ms = wall_ms()
        was_ahead, self._ahead = self._ahead, now_ms - clock_ms > AHEAD_MS
        done = (
            f"{counted(applied.timers_count, 'timer')} fired and"
            f" {counted(applied.expired_count, 'entry')} expired in this batch"
        )
        if self._ahead and not was_ahead:
            log.warning(
                "partition %d: batch %d moved stream time to %s, %.1f hours ahead of the clock of this machine: the"
                " timestamp of a record lies in the future. What is due up to then happens now; %s",
                self._partition,
                batch,
                _text(now_ms),
                (now_ms - clock_ms) / 3_600_000,
                done,
            )
        elif before_ms >= 0 and now_ms - before_ms > JUMP_MS:
            self._jumped(batch, before_ms, now_ms, done)

    def _jumped(self, batch: int, before_ms: int, now_ms: int, done: str) -> None:
        """Of a long way with much that is due, each full batch is a jump."""
        at = asyncio.get_running_loop().time()
        said = self._said.met("jump", at)
        if said is not None:
            log.info(
                "partition %d: batch %d moved stream time by %.1f days, from %s to %s; %s%s",
                self._partition,
                batch,
                (now_ms - before_ms) / 86_400_000,
                _text(before_ms),
                _text(now_ms),
                done,
                said.more(at),
            )


def _text(at_ms: int) -> str:
    """Years beyond 9999 are possible in Kafka and not in a date."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"

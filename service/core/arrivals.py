"""The order in which records of several inputs are processed: the oldest first, as in Kafka Streams (KIP-353, KIP-695).
Pure. An increment records the order as ranges, and a replay follows these."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from snapreplay.app.record import InputRecord

_timestamp = attrgetter("timestamp")


class Place(NamedTuple):
    """How far an input was read: the next offset, and the end of the log as the last fetch told it; None: not yet."""

    position: int
    end_offset: int | None

    @property
    def is_at_end(self) -> bool:
        return self.end_offset is not None and self.position >= self.end_offset


class Arrivals:
    """Records that were fetched and are not processed yet, by input; each input keeps its own order."""

    def __init__(self, inputs: Iterable[str], wait_ms: int) -> None:
        """Take `wait_ms`: how long to wait for an input that was read to its end while others have records. −1: never
        wait."""
        self._runs: dict[str, list[InputRecord]] = {name: [] for name in inputs}
        self._wait_ms = wait_ms
        self._quiet_since: dict[str, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    def add(self, run: Sequence[InputRecord]) -> None:
        """Add records of one input, not none, behind those that it has."""
        name = run[0].topic
        if self._runs[name]:
            self._runs[name] += run
        else:
            self._runs[name] = list(run)
        self._quiet_since.pop(name, None)

    def clear(self) -> None:
        """Forget all records: they are read again."""
        for run in self._runs.values():
            run.clear()

    @property
    def empty(self) -> list[str]:
        """The inputs without records, which are to be polled."""
        return [name for name, run in self._runs.items() if not run]

    def has(self, name: str) -> bool:
        return bool(self._runs[name])

    def awaited(self, places: Mapping[str, Place], now_s: float) -> list[str]:
        """Return the inputs of which more is to come, or may come in time: nothing behind what is here of them may be
        processed yet."""
        if self._wait_ms < 0:
            return []
        behind = [name for name, place in places.items() if not place.is_at_end]
        if self._wait_ms == 0:
            return behind
        if any(self._runs.values()):
            for name in self.empty:
                self._quiet_since.setdefault(name, now_s)
        return [name for name in self._runs if name in behind or self.wait_left_s(name, now_s) > 0]

    def wait_left_s(self, name: str, now_s: float) -> float:
        """Return for how long an input that is read to its end is still waited for."""
        return self._quiet_since.get(name, now_s) + self._wait_ms / 1000 - now_s

    def blocked_by(self, awaited: Iterable[str]) -> list[str]:
        """Return those of these inputs without records: nothing can be processed before they have one."""
        return [name for name in awaited if not self._runs[name]]

    def take(self, records_max: int, awaited: Collection[str]) -> Sequence[InputRecord]:
        """Take the next records, the oldest first, up to where an awaited input has no more; on a tie, the input that
        was declared first."""
        runs = [run for run in self._runs.values() if run]
        if not runs or self.blocked_by(awaited):
            return ()
        if len(runs) == 1:
            (run,) = runs
            self._runs[run[0].topic] = run[records_max:]
            return run if len(run) <= records_max else run[:records_max]
        taken = list(islice(heapq.merge(*runs, key=_timestamp), records_max))
        if awaited:
            lasts = {id(self._runs[name][-1]) for name in awaited}
            end = next((count for count, record in enumerate(taken, 1) if id(record) in lasts), len(taken))
            del taken[end:]
        for name, count in Counter(record.topic for record in taken).items():
            del self._runs[name][:count]
        return taken

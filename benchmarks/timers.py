"""The cost of timers that are due at once, without Kafka: each batch as the service applies it, in steps; and memory.

Run: `python -m benchmarks.timers [--timers 100000] [--rounds 3]`. Times are CPU time of this thread; the figure is the
median over rounds, the best one behind it.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from statistics import median
from typing import Any

import psutil

from benchmarks.harness import machine
from snapreplay.app.app import App
from snapreplay.app.batch import Portion
from snapreplay.app.codecs import utf8
from snapreplay.app.fold import Fold
from snapreplay.app.record import InputRecord, RawRecord
from snapreplay.app.topic import Topic
from snapreplay.state.map import MapState
from snapreplay.state.steps import Steps, all_of

BATCH = 5000
DUE_MS = 1_000_000
TICKS = Topic("ticks", value=utf8)


def app() -> App[MapState[str, int]]:
    made: App[MapState[str, int]] = App("timers", inputs=[TICKS], state=lambda: MapState(str, int), version="1")

    @made.handler(TICKS)
    def on_tick(record: Any, state: MapState[str, int], _: Any) -> None:
        if record.timestamp_ms < DUE_MS:
            state.schedule(record.key, DUE_MS, timer="ring")

    @made.timer("ring")
    def ring(timer: Any, state: MapState[str, int], _: Any) -> None:
        state[timer.key] = 1

    return made


class Round:
    """One partition, and its timers."""

    def __init__(self, timers: int) -> None:
        made, before = app(), resident_bytes()
        self.store = made.new_store()
        self._fold, self._offset = Fold(made, self.store, 0), 0
        for start in range(0, timers, BATCH):
            numbers = range(start, min(start + BATCH, timers))
            for _ in self._batch([_record(n, n % 1000, f"k{n:07}") for n in numbers]):
                pass
        self.bytes_per_timer = (resident_bytes() - before) / timers

    def fire(self) -> tuple[float, int]:
        """Fire all timers; return the seconds and the number of batches."""
        began, batches, is_full = time.thread_time(), 0, True
        while is_full:
            is_full, batches = all_of(self._last()), batches + 1
        return time.thread_time() - began, batches

    def longest_step(self) -> float:
        """Return the seconds of the longest step. A clock of the thread is slow, so this is no measure of all of
        them together."""
        worst, is_full = 0.0, True
        while is_full:
            steps = self._last()
            while True:
                before = time.thread_time()
                try:
                    next(steps)
                except StopIteration as end:
                    is_full = end.value
                    break
                finally:
                    worst = max(worst, time.thread_time() - before)
        return worst

    def _last(self) -> Steps[bool]:
        return self._batch([_record(self._offset, DUE_MS, "last")])

    def _batch(self, records: list[InputRecord]) -> Steps[bool]:
        """Apply one batch, in the steps between which other tasks of a service may run."""
        fold, portion = self._fold, Portion(records, events_max=BATCH)
        fold.begin({"ticks": self._offset}, portion)
        yield
        yield from fold.applying(portion)
        yield from fold.staging()
        applied = yield from fold.sealing()
        yield
        self.store.merge()
        self._offset = applied.positions["ticks"]
        return applied.is_full


def resident_bytes() -> int:
    resident: int = psutil.Process().memory_info().rss
    return resident


def peak_bytes() -> int:
    """Return the most since the start of the process."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _record(offset: int, timestamp_ms: int, key: str) -> InputRecord:
    return RawRecord("ticks", 0, offset, timestamp_ms, key.encode(), b"")


def main() -> None:
    """Print the figures. The first round has memory to itself, the last one is for the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timers", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    gc.freeze()
    gc.set_threshold(5_000, 8, 2)  # as the service does
    first, before = Round(options.timers), resident_bytes()
    found = [first.fire()]
    most, after, per_timer = peak_bytes(), resident_bytes(), first.bytes_per_timer
    del first
    found += [Round(options.timers).fire() for _ in range(options.rounds - 1)]
    seconds, batches = [each[0] for each in found], found[0][1]
    print(
        f"{options.timers:,} timers due at once: {median(seconds):.2f} s ({min(seconds):.2f}) in {batches} batches,"
        f" {median(seconds) / options.timers * 1e6:.1f} µs each; longest step"
        f" {Round(options.timers).longest_step() * 1000:.1f} ms"
    )
    print(
        f"memory: {before / 2**20:,.0f} MiB with all of them pending, {per_timer:.0f} bytes each; at most"
        f" {most / 2**20:,.0f} MiB while they fire, and write an entry each; {after / 2**20:,.0f} MiB after it"
    )


if __name__ == "__main__":
    main()

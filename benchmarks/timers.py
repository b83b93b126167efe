"""What timers cost that are due at once, without Kafka: each batch as the service applies it, in steps.

Run: `python -m benchmarks.timers [--timers 100000] [--rounds 3]`. Times are CPU time of this thread; the figure is the
median over rounds, the best one behind it.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

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
    made: App[MapState[str, int]] = App(
        "timers", inputs=[TICKS], state=lambda: MapState(str, int), version="1"
    )

    @made.handler(TICKS)
    def on_tick(record: Any, state: MapState[str, int], _: Any) -> None:
        if record.timestamp_ms < DUE_MS:
            state.schedule(record.key, DUE_MS, timer="ring")

    @made.timer("ring")
    def ring(timer: Any, state: MapState[str, int], _: Any) -> None:
        state[timer.key] = 1

    return made


def longest(steps: Steps[Any]) -> float:
    """Seconds of the longest step, on the clock: asking for CPU time costs more than a step."""
    worst, before = 0.0, time.perf_counter()
    for _ in steps:
        now = time.perf_counter()
        worst, before = max(worst, now - before), now
    return max(worst, time.perf_counter() - before)


class Round:
    """One partition, and its timers."""

    def __init__(self, timers: int) -> None:
        made = app()
        self.store = made.new_store()
        self._fold, self._offset = Fold(made, self.store, 0), 0
        for start in range(0, timers, BATCH):
            numbers = range(start, min(start + BATCH, timers))
            self._batch([_record(number, number % 1000, f"k{number:07}") for number in numbers])

    def fire(self) -> tuple[float, float, int]:
        """Seconds, seconds of the longest step, batches."""
        began, worst, batches, is_full = time.thread_time(), 0.0, 0, True
        while is_full:
            step, is_full = self._batch([_record(self._offset, DUE_MS, "last")])
            worst, batches = max(worst, step), batches + 1
        return time.thread_time() - began, worst, batches

    def _batch(self, records: list[InputRecord]) -> tuple[float, bool]:
        fold, portion = self._fold, Portion(records, events_max=BATCH)
        fold.begin({"ticks": self._offset}, portion)
        worst = max(longest(fold.applying(portion)), longest(fold.staging()))
        applied = all_of(fold.sealing())
        self.store.merge()
        self._offset = applied.positions["ticks"]
        return worst, applied.is_full


def _record(offset: int, timestamp_ms: int, key: str) -> InputRecord:
    return RawRecord("ticks", 0, offset, timestamp_ms, key.encode(), b"")


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timers", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    found = [Round(options.timers).fire() for _ in range(options.rounds)]
    seconds, worst = [each[0] for each in found], max(each[1] for each in found)
    print(
        f"{options.timers:,} timers due at once: {median(seconds):.2f} s ({min(seconds):.2f}) in"
        f" {found[0][2]} batches, {median(seconds) / options.timers * 1e6:.1f} µs each,"
        f" longest step {worst * 1000:.1f} ms"
    )


if __name__ == "__main__":
    main()

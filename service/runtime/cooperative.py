"""A batch's work on the fold, without keeping the event loop to itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from snapreplay.app.batch import Portion
from snapreplay.app.fold import Fold
from snapreplay.app.record import InputRecord
from snapreplay.state.steps import Steps

T = TypeVar("T")

SLICE_RECORDS = 256
# Other partitions, commits and snapshots share this loop.
YIELD_AFTER_SECONDS = 0.001
# A transaction is a chain of steps in several tasks of the client, each in a turn of the loop. With one turn per pause
# it outlasted the next batch, and a tenth of the time was idle; with three turns 1 to 3 % (measured).
PAUSE_TURNS = 3


async def pause() -> None:
    """Let the other tasks of this loop run."""
    for _ in range(PAUSE_TURNS):
        await asyncio.sleep(0)


class Pauses:
    """Pauses when a millisecond has passed since the last pause, or since this was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._resumed = self._loop.time()

    async def when_due(self) -> None:
        if self._loop.time() - self._resumed > YIELD_AFTER_SECONDS:
            await pause()
            self._resumed = self._loop.time()


async def run_cooperatively(steps: Steps[T]) -> T:
    """Run to the end, with pauses. Raises whatever a step raises."""
    pauses = Pauses()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            await pauses.when_due()
            return answer
        await pauses.when_due()


async def apply(fold: Fold, portion: Portion) -> None:
    """Apply what a batch is to apply, as far as it has room.

    Raises:
        RecordError: as `Fold.applying`; the batch must be abandoned.
    """
    if fold.is_timed or portion.skipped:
        await run_cooperatively(fold.applying(portion))
    else:
        await _feed(fold, portion.records)


async def _feed(fold: Fold, records: Sequence[InputRecord]) -> None:
    """Apply `records` in order. A single slow handler call cannot be interrupted; HTTP and membership live in
    a thread of their own for that reason. Slices begin with one record and grow while they are quick: 256 calls of
    20 ms without a pause would let every transaction under way in this loop pass its deadline."""
    loop, pauses = asyncio.get_running_loop(), Pauses()
    start, size = 0, 1
    while start < len(records):
        began = loop.time()
        fold.feed(records[start : start + size])
        start += size
        fitting = int(size * YIELD_AFTER_SECONDS / max(loop.time() - began, 1e-6))
        size = max(1, min(fitting, 2 * size, SLICE_RECORDS))
        await pauses.when_due()

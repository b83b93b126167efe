"""A batch's work on the fold, without keeping the event loop to itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from snapreplay.app.batch import Portion
from snapreplay.app.fold import SLICE_RECORDS, Fold
from snapreplay.snapshots.log.reading import Reading, Slice, Source
from snapreplay.state.steps import Steps

T = TypeVar("T")

# Other partitions, commits and snapshots share this loop.
YIELD_AFTER_SECONDS = 0.001
# A transaction is a chain of steps in several tasks of the client, each in a turn of the loop. With one turn per pause
# it outlasted the next batch, and a tenth of the time was idle; with three turns 1 to 3 % (measured). From an answer to
# the next request it takes three to nine turns. With three per pause, quiet partitions beside a busy one took two to
# three times as long (measured).
PAUSE_TURNS, PAUSE_TURNS_MAX = 3, 8
EMPTY_TURN_SECONDS = 0.00002  # a turn that took longer had work


async def pause() -> None:
    """Let the other tasks of this loop run: for more turns while they have work."""
    time = asyncio.get_running_loop().time
    began = time()
    for turns in range(1, PAUSE_TURNS_MAX + 1):
        await asyncio.sleep(0)
        ended = time()
        if turns >= PAUSE_TURNS and ended - began < EMPTY_TURN_SECONDS:
            break
        began = ended


WORKED_SECONDS_MAX = 1.0  # more was spent waiting


def always() -> bool:
    return True


class Throttle:
    """Keeps the work of a task within its share of the loop while others are busy: it rests after each millisecond.

    Attributes:
        rested_seconds: in all.
    """

    def __init__(self, share: float, is_busy: Callable[[], bool] = always) -> None:
        self._share, self._is_busy = share, is_busy
        self.rested_seconds = 0.0

    async def rest(self, worked_seconds: float) -> None:
        if not self._is_busy():
            return await pause()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(min(worked_seconds, WORKED_SECONDS_MAX) * (1 / self._share - 1))
        self.rested_seconds += loop.time() - began
        return None


_THROTTLE: ContextVar[Throttle | None] = ContextVar("throttle", default=None)


@contextmanager
def throttled(share: float, is_busy: Callable[[], bool] = always) -> Iterator[Throttle]:
    """Keep what this task does in the block within a share of the loop, while `is_busy` says that others need it."""
    throttle = Throttle(share, is_busy)
    before = _THROTTLE.set(throttle)
    try:
        yield throttle
    finally:
        _THROTTLE.reset(before)


class Pauses:
    """Pauses when a millisecond has passed since the last pause, or since this was made; for longer where the task is
    `throttled`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._resumed = self._loop.time()

    async def when_due(self) -> None:
        worked = self._loop.time() - self._resumed
        if worked > YIELD_AFTER_SECONDS:
            throttle = _THROTTLE.get()
            await (pause() if throttle is None else throttle.rest(worked))
            self._resumed = self._loop.time()


Read = Callable[[Source], AsyncGenerator[Slice, None]]
"""Gives what a `Reading` asks for. It is closed when that ends."""


async def run_cooperatively(steps: Reading[T], read: Read | None = None) -> T:
    """Run to the end, with pauses. Raises what a step or `read` raises. Steps that read no records need no `read`."""
    pauses, answer = Pauses(), None
    cursors: dict[Source, AsyncGenerator[Slice, None]] = {}
    try:
        while True:
            try:
                wanted = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                await pauses.when_due()
                return result
            answer = None
            if wanted is not None:
                answer = await _answered(wanted, cursors, read)
            await pauses.when_due()
    finally:
        for cursor in cursors.values():
            await cursor.aclose()


async def _answered(
    wanted: Source | Callable[[], Any], cursors: dict[Source, AsyncGenerator[Slice, None]], read: Read | None
) -> Any:
    if not isinstance(wanted, Source):
        return await asyncio.to_thread(wanted)
    if wanted not in cursors:
        if read is None:
            raise AssertionError(f"the steps want {wanted}, but there is no `read`")
        cursors[wanted] = read(wanted)
    return await anext(cursors[wanted], None) or ()  # a tuple as the default: CPython #128078


def feeding(fold: Fold, portion: Portion) -> Steps[None]:
    """Do as `Fold.applying`, in steps of about a millisecond.

    A single slow handler call cannot be interrupted; HTTP and membership live in a thread of their own for that reason.
    Slices begin with one record and grow while they are quick: 256 calls of 20 ms without a pause would let every
    transaction under way in this loop pass its deadline.
    """
    time = asyncio.get_running_loop().time
    fold.slice_records, began = 1, time()
    for _ in fold.applying(portion):
        size, fold.stepped = fold.stepped, 0
        if size:  # else the step fired a timer or skipped a record: that says nothing about the handler
            fitting = int(size * YIELD_AFTER_SECONDS / max(time() - began, 1e-6))
            fold.slice_records = max(1, min(fitting, 2 * size, SLICE_RECORDS))
        yield
        began = time()

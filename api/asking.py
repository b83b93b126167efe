"""Asks the service of this process, for the handlers of HTTP in their loop.

Statuses are immutable, so they are read in HTTP's thread. Commands and reads of states are carried out in the runners'
loop. It may be kept by a handler, so each has a deadline; what has not begun by then is withdrawn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from snapreplay.service.clock import boot_seconds
from snapreplay.service.control.kafka_reads import (
    HISTORY_SECONDS,
    DeadLetterList,
    KeyHistory,
    PartitionHistory,
    ReadKeyHistory,
    SavepointList,
)
from snapreplay.service.control.operations import Command, Operation
from snapreplay.service.control.protocol import Control, LoopBlocked, StatusDocument, TooManyCommands
from snapreplay.service.control.state_reads import (
    BATCH_SECONDS,
    READ_SECONDS,
    BatchUnderWay,
    ReadLate,
    StateAnswer,
    StateRead,
)

T = TypeVar("T")
U = TypeVar("U")

COMMAND_SECONDS = 2.0
WAITING_MAX = 64
"""Commands and reads of states together."""
FROM_KAFKA_MAX = 4
FROM_KAFKA_SECONDS = HISTORY_SECONDS + 3.0  # less than a connection may take for a request
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.25
IDLE_TIMES = 5
"""After making a status, or after a read in the runners' loop, HTTP pauses for this many times as long. So a flood of
requests takes at most a sixth of the loop."""
IDLE_SECONDS_MAX = READ_SECONDS / 2  # after one read: more would refuse the next page of the same reader
BURST_SECONDS = 0.005
LAST_SECONDS = 1.0
LOOK_SECONDS = 0.005  # for the end of a batch


class Asking:
    """The service as HTTP's handlers ask it, in their loop.

    Each call raises what `Control` does; besides TooManyCommands if others wait already, and LoopBlocked or ReadLate if
    there is no answer in time. Then nothing was started."""

    def __init__(self, control: Control, runners: asyncio.AbstractEventLoop) -> None:
        """Take `runners`: the loop that control's commands and reads are for."""
        self._control = control
        self._runners = runners
        self._reads = _Reads(control)
        self._converting = asyncio.Lock()
        self._waiting = self._from_kafka = 0
        self._newest: StatusDocument | None = None
        self._looking: asyncio.Task[StatusDocument] | None = None
        self._newest_at = self._not_before = 0.0

    async def look(self) -> StatusDocument:
        """Return the process as it is now. All who wait for the next status share it."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        return await asyncio.shield(self._looking)

    def recent(self) -> StatusDocument:
        """Return the newest status at once; make one only if it is due."""
        is_recent = asyncio.get_running_loop().time() < self._not_before
        return self._newest if self._newest is not None and is_recent else self._make()

    def last(self) -> StatusDocument:
        """Return what was known up to a second ago."""
        if self._newest is None or boot_seconds() - self._newest_at > LAST_SECONDS:
            self._make()
        assert self._newest is not None  # noqa: S101 - made above where it is missing
        return self._newest

    async def perform(self, command: Command) -> Operation:
        begun: Future[Operation] = Future()

        def perform() -> None:
            if begun.set_running_or_notify_cancel():
                try:
                    begun.set_result(self._control.perform(command))
                except Exception as error:  # noqa: BLE001 - raised where it is awaited
                    begun.set_exception(error)

        with self._place():
            self._runners.call_soon_threadsafe(perform)
            answered = asyncio.wrap_future(begun)
            await asyncio.wait([answered], timeout=COMMAND_SECONDS)
            if begun.cancel():
                raise LoopBlocked(COMMAND_SECONDS)
            self._newest = None  # it does not show the operation
            return await answered

    async def read(self, read: StateRead, shown: Callable[[StateAnswer], T]) -> T:
        """Read entries as of the last committed batch; return what `shown`, called in a thread, makes of them."""
        with self._place():
            answer = await self._in_time(self._reads.read(read, boot_seconds()), READ_SECONDS)
            return await self._converted(shown, answer)

    async def history(self, partition: int) -> PartitionHistory:
        return await self._of_kafka(lambda: self._control.history(partition))

    async def key_history(self, read: ReadKeyHistory, shown: Callable[[KeyHistory], T]) -> T:
        return await self._converted(shown, await self._of_kafka(lambda: self._control.key_history(read)))

    async def savepoints(self) -> SavepointList:
        return await self._of_kafka(self._control.savepoints)

    async def dead_letters(self) -> DeadLetterList:
        return await self._of_kafka(self._control.dead_letters)

    async def _look(self) -> StatusDocument:
        await asyncio.sleep(self._not_before - asyncio.get_running_loop().time())
        self._looking = None
        return self._make()

    def _make(self) -> StatusDocument:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._newest, self._newest_at = self._control.document(), boot_seconds()
        pause_seconds = IDLE_TIMES * (loop.time() - began)
        self._not_before = loop.time() + min(max(pause_seconds, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
        return self._newest

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._waiting >= WAITING_MAX:
            raise TooManyCommands(self._waiting)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _of_kafka(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._from_kafka >= FROM_KAFKA_MAX:
            raise TooManyCommands(self._from_kafka)
        self._from_kafka += 1
        try:
            return await self._in_time(self._reads.of_kafka(read), FROM_KAFKA_SECONDS)
        finally:
            self._from_kafka -= 1

    async def _converted(self, shown: Callable[[U], T], answer: U) -> T:
        """Convert an answer in a thread, one at a time: for 1 MB it takes tenths of a second, and this loop answers
        the probes."""

        def convert() -> tuple[T, float]:
            began = time.thread_time()
            return shown(answer), time.thread_time() - began

        try:
            async with asyncio.timeout(READ_SECONDS):
                await self._converting.acquire()
        except TimeoutError:
            raise ReadLate(READ_SECONDS) from None
        try:
            converted, spent_seconds = await asyncio.to_thread(convert)
        finally:
            self._converting.release()
        self._runners.call_soon_threadsafe(self._reads.pause, IDLE_TIMES * spent_seconds)
        return converted

    async def _in_time(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Do this in the runners' loop."""
        done = asyncio.run_coroutine_threadsafe(work, self._runners)
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await asyncio.wrap_future(done)
        except TimeoutError:
            if deadline.expired():
                raise ReadLate(seconds) from None
            raise


class _Reads:
    """Reads in the runners' loop, of whose time they take a share."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._one, self._one_of_kafka = asyncio.Lock(), asyncio.Lock()
        self._free_at = 0.0

    async def read(self, read: StateRead, asked_at: float) -> StateAnswer:
        """Read, as soon as a warm copy has a whole batch. `asked_at`: boot seconds."""
        loop = asyncio.get_running_loop()
        while True:
            async with self._one:
                ahead_seconds = self._free_at - loop.time()
                if ahead_seconds > BURST_SECONDS:
                    await asyncio.sleep(ahead_seconds)
                if boot_seconds() > asked_at + READ_SECONDS:
                    raise ReadLate(READ_SECONDS)
                began = time.thread_time()  # of this thread alone: by the clock, a busy machine would end all reads
                try:
                    return self._control.read(read)
                except BatchUnderWay:
                    if boot_seconds() > asked_at + BATCH_SECONDS:
                        raise
                finally:
                    spent_seconds = time.thread_time() - began
                    # A collection of garbage in between counts, too.
                    idle_seconds = min(IDLE_TIMES * spent_seconds, IDLE_SECONDS_MAX)
                    self._free_at = max(self._free_at, loop.time()) + idle_seconds
            await asyncio.sleep(LOOK_SECONDS)

    def pause(self, seconds: float) -> None:
        """Let the next read wait after a conversion, for which the loop gave up a share of its time."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now + min(seconds, IDLE_SECONDS_MAX))

    async def of_kafka(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self._one_of_kafka:
            return await read()

"""The HTTP process's end of its line to the service: questions, and answers in the same order. It decodes none."""

from __future__ import annotations

import asyncio
import logging
import select
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from snapreplay.counted import counted
from snapreplay.service.clock import boot_seconds
from snapreplay.service.control.framing import LENGTH, AskStatus, Logged, frame

if TYPE_CHECKING:  # probes wait for this module
    from snapreplay.service.control.framing import Probed
    from snapreplay.service.control.protocol import StatusDocument

T = TypeVar("T")
D = TypeVar("D", bound="Probed | StatusDocument")

ANSWER_SECONDS = 2.0
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.25
MOMENT_SECONDS = PAUSE_SECONDS_MAX + 0.1  # a question may be held back for the pause
PAUSE_PER_ANSWER = 5  # so that a flood of requests takes at most a sixth of a thread of the service
LOG_LINES_PER_SECOND = 10


class Line:
    """A stream with the service at its other end. `run` it in the loop of those who ask."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._awaited: deque[asyncio.Future[bytes]] = deque()
        self._log_second, self._log_lines = 0, 0

    async def run(self) -> None:
        """Run until the service has ended, or wants this process to end."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                answer = await self._reader.readexactly(length)
                awaited = self._awaited.popleft()
                if not awaited.done():
                    awaited.set_result(answer)

    @property
    def waiting(self) -> int:
        """Count the questions that have no answer yet."""
        return len(self._awaited)

    def ask(self, question: msgspec.Struct) -> asyncio.Future[bytes]:
        """Ask at once, so that `waiting` counts it; return the answer to come."""
        awaited: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._awaited.append(awaited)
        self.tell(question)
        return awaited

    def tell(self, news: msgspec.Struct) -> None:
        """Tell what is not answered."""
        self._writer.write(frame(news))

    def log(self, record: logging.LogRecord, text: str) -> None:
        """Log to the service: a few warnings a second, because any number of connections may cause them. What was done
        (INFO) is always told: a crowd of refusals must not hide it."""
        if record.levelno < logging.WARNING:
            self.tell(Logged(record.levelno, record.name, text))
            return
        second = int(boot_seconds())
        if second != self._log_second:
            if (left_out := self._log_lines - LOG_LINES_PER_SECOND) > 0:
                self.tell(
                    Logged(record.levelno, record.name, f"{counted(left_out, 'line')} left out: too many a second")
                )
            self._log_second, self._log_lines = second, 0
        self._log_lines += 1
        if self._log_lines <= LOG_LINES_PER_SECOND:
            self.tell(Logged(record.levelno, record.name, text))

    @property
    def has_hung_up(self) -> bool:
        """Whether the service has hung up, as it does when it ends in good order. It listens on for a moment then; a
        service that died does not."""
        line = select.poll()
        line.register(self._writer.get_extra_info("socket"), 0)
        return self._reader.at_eof() and not line.poll(0)


async def in_time(answered: asyncio.Future[T], seconds: float) -> bool:
    """Wait for an answer for so long, and say whether it is there. This process may have stood still meanwhile: the
    answer is not read yet then, or the question not sent. `MOMENT_SECONDS` more are for that."""
    for each in (seconds, MOMENT_SECONDS):
        if (await asyncio.wait([answered], timeout=each))[0]:
            return True
    return False


class SharedQuestion(Generic[T]):
    """One question for all who wait for its answer. It is asked after each of them began to wait."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None
        self._asked_at = self._not_before = 0.0

    async def new(self) -> T | None:
        """Return a new answer; None: there is none, or nobody has answered the question before for so long."""
        loop = asyncio.get_running_loop()
        is_open = self._asking is not None and not self._asking.done()
        is_late = is_open and loop.time() - self._asked_at > ANSWER_SECONDS
        if self._next is None:
            self._next = loop.create_task(self._in_turn(self._asking))
        answered = self._next
        return answered.result() if await in_time(answered, 0.0 if is_late else ANSWER_SECONDS) else None

    async def _in_turn(self, before: asyncio.Task[T] | None) -> T:
        loop = asyncio.get_running_loop()
        if before is not None:
            await asyncio.wait([before])
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        self._asking, self._next, self._asked_at = self._next, None, loop.time()
        answer = await self._ask()
        answered_at = loop.time()
        pause = PAUSE_PER_ANSWER * (answered_at - self._asked_at)
        self._not_before = answered_at + min(max(pause, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
        return answer


class Status(Generic[D]):
    """The newest status that the service has told."""

    def __init__(self, line: Line, decode: Callable[[bytes], D | None]) -> None:
        """Take `decode`, which returns None for a refusal."""
        self._line = line
        self._decode = decode
        self._began_at = boot_seconds()
        self._newest: D | None = None
        self._asked = SharedQuestion(self._ask)

    async def look(self) -> tuple[D | None, float]:
        """Ask, and return what is known then, and how long the service has been silent. An answer that is old when it
        is read came while this process stood still: that is no silence, and it asks again."""
        if await self._asked.new() and self.last()[1] > ANSWER_SECONDS:
            await self._asked.new()
        return self.last()

    def last(self) -> tuple[D | None, float]:
        """Return the same without asking."""
        since = self._began_at if self._newest is None else self._newest.made_at
        return self._newest, max(0.0, boot_seconds() - since)

    async def _ask(self) -> D | None:
        self._newest = self._decode(await self._line.ask(AskStatus())) or self._newest
        return self._newest

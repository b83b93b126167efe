"""The HTTP process's end of its line to the service: asks for the status, passes commands on, and the log."""

from __future__ import annotations

import asyncio
import logging
import select
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from snapreplay.service.clock import boot_seconds
from snapreplay.service.control import wire
from snapreplay.service.control.protocol import (
    Command,
    Family,
    Look,
    Once,
    Operation,
    Silent,
    StatusDocument,
    TooManyCommands,
)

T = TypeVar("T")

COMMANDS_MAX = 64
ANSWER_SECONDS = 2.0
BEAT_SECONDS = 1.0
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.25
PAUSE_PER_ANSWER = 5  # so that a flood of requests takes at most a sixth of a thread of the service
LOG_LINES_PER_SECOND = 10


class ServiceLink:
    """A `StatusSource` whose service is at the other end of a stream. `run` it in the loop of the handlers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._began_at = boot_seconds()
        self._awaited: deque[asyncio.Future[wire.Answer]] = deque()
        self._newest: StatusDocument | None = None
        self._status = Shared(self._ask_status)
        self._counted = Shared(self._ask_counted)
        self._log_second, self._log_lines = 0, 0

    async def run(self) -> None:
        """Run until the service has ended, or wants this process to end."""
        tasks = [asyncio.create_task(each) for each in (self._read(), self._beat())]
        try:
            await tasks[0]
        finally:
            tasks[1].cancel()

    async def look(self) -> Look:
        await self._status.new()
        return self.last()

    def last(self) -> Look:
        """Return what is known without asking."""
        document = self._newest
        since = self._began_at if document is None else document.made_at
        return Look(document, max(0.0, boot_seconds() - since))

    @property
    def has_hung_up(self) -> bool:
        """Whether the service has hung up, as it does when it ends in good order. It listens on for a moment then; a
        service that died does not."""
        line = select.poll()
        line.register(self._writer.get_extra_info("socket"), 0)
        return self._reader.at_eof() and not line.poll(0)

    def suspect(self, process_id: str, why: str, is_silent: bool) -> None:  # noqa: FBT001 - whoever calls it back gives it by position
        self._writer.write(wire.frame(wire.Suspected(process_id, why, is_silent)))

    def ended(self, process_id: str) -> None:
        """Tell that a peer ends in good order."""
        self._writer.write(wire.frame(wire.Ended(process_id)))

    async def counted(self) -> Sequence[Family]:
        families = await self._counted.new()
        if families is None:
            raise Silent(ANSWER_SECONDS)
        return families

    async def perform(self, command: Command | Once) -> Operation:
        if len(self._awaited) >= COMMANDS_MAX:
            raise TooManyCommands(len(self._awaited))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._ask(command)
        except TimeoutError:
            raise Silent(ANSWER_SECONDS) from None
        if isinstance(answer, wire.Refused):
            raise answer.as_error()
        assert isinstance(answer, wire.Performed)  # noqa: S101 - answers come in order, and a command has no other
        return answer.operation

    def log(self, record: logging.LogRecord, text: str) -> None:
        """Log to the service: a few lines a second, because any number of connections may cause them."""
        second = int(boot_seconds())
        if second != self._log_second:
            self._log_second, self._log_lines = second, 0
        self._log_lines += 1
        if self._log_lines <= LOG_LINES_PER_SECOND:
            self._writer.write(wire.frame(wire.Logged(record.levelno, record.name, text)))

    async def _beat(self) -> None:
        """Beat, so that the service sees that this process lives, and this one that the service does."""
        while True:
            await self._status.new()
            await asyncio.sleep(BEAT_SECONDS)

    async def _read(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (length,) = wire.LENGTH.unpack(await self._reader.readexactly(wire.LENGTH.size))
                answer = wire.answer(await self._reader.readexactly(length))
                awaited = self._awaited.popleft()
                if not awaited.done():
                    awaited.set_result(answer)

    async def _ask(self, question: wire.Question) -> wire.Answer:
        awaited: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        self._awaited.append(awaited)
        self._writer.write(wire.frame(question))
        return await awaited

    async def _ask_status(self) -> StatusDocument | None:
        answer = await self._ask(wire.AskStatus())
        if isinstance(answer, StatusDocument):
            self._newest = answer
        return self._newest

    async def _ask_counted(self) -> Sequence[Family] | None:
        answer = await self._ask(wire.AskCounted())
        return answer.families if isinstance(answer, wire.Counted) else None


class Shared(Generic[T]):
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
        if is_open and loop.time() - self._asked_at > ANSWER_SECONDS:
            return None
        if self._next is None:
            self._next = loop.create_task(self._in_turn(self._asking))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.shield(self._next)
        except TimeoutError:
            return None

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

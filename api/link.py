"""Asks the service for its status and its counts, and passes commands on, over the HTTP process's line to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from snapreplay.api.line import ANSWER_SECONDS, Line, SharedQuestion, Status, in_time
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

COMMANDS_MAX = 64
BEAT_SECONDS = 1.0


class ServiceLink:
    """A `StatusSource` whose service is at the other end of a stream. `run` it in the loop of the handlers."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._status = Status(line, _status)
        self._counted = SharedQuestion(self._ask_counted)

    async def run(self) -> None:
        """Beat, so that the service sees that this process lives, and this one that the service does."""
        while True:
            await self._status.look()
            await asyncio.sleep(BEAT_SECONDS)

    async def look(self) -> Look:
        return Look(*await self._status.look())

    def last(self) -> Look:
        """Return what is known without asking."""
        return Look(*self._status.last())

    def suspect(self, process_id: str, why: str, silent_seconds: float | None) -> None:
        self._line.tell(wire.Suspected(process_id, why, silent_seconds))

    def ended(self, process_id: str) -> None:
        """Tell that a peer ends in good order."""
        self._line.tell(wire.Ended(process_id))

    async def counted(self) -> Sequence[Family]:
        families = await self._counted.new()
        if families is None:
            raise Silent(ANSWER_SECONDS)
        return families

    async def perform(self, command: Command | Once) -> Operation:
        if self._line.waiting >= COMMANDS_MAX:
            raise TooManyCommands(self._line.waiting)
        answered = self._line.ask(command)
        if not await in_time(answered, ANSWER_SECONDS):
            raise Silent(ANSWER_SECONDS, to_a_command=True)
        answer = wire.answer(answered.result())
        if isinstance(answer, wire.Refused):
            raise answer.as_error()
        assert isinstance(answer, wire.Performed)  # noqa: S101 - answers come in order, and a command has no other
        return answer.operation

    async def _ask_counted(self) -> Sequence[Family] | None:
        answer = wire.answer(await self._line.ask(wire.AskCounted()))
        return answer.families if isinstance(answer, wire.Counted) else None


def _status(encoded: bytes) -> StatusDocument | None:
    answer = wire.answer(encoded)
    return answer if isinstance(answer, StatusDocument) else None

"""The HTTP process's end of the line for reads of states."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count

from snapreplay.service.clock import boot_seconds
from snapreplay.service.control import wire
from snapreplay.service.control.protocol import TooManyCommands
from snapreplay.service.control.state_reads import READ_SECONDS, ReadLate, StateAnswer, StateRead

READS_MAX = 64
UNSENT_BYTES_MAX = 256 * 1024  # a frozen service takes nothing


class StateLink:
    """A `StateSource` whose service is at the other end of a stream. `run` it in the loop of the handlers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = count()
        self._awaited: dict[int, asyncio.Future[StateAnswer | wire.Refused]] = {}

    async def run(self) -> None:
        """Run until the service has ended."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (length,) = wire.LENGTH.unpack(await self._reader.readexactly(wire.LENGTH.size))
                answered = wire.answered(await self._reader.readexactly(length))
                awaited = self._awaited.get(answered.id)
                if awaited is not None and not awaited.done():
                    awaited.set_result(answered.answer)

    async def read(self, read: StateRead) -> StateAnswer:
        unsent_bytes = self._writer.transport.get_write_buffer_size()
        if len(self._awaited) >= READS_MAX or unsent_bytes > UNSENT_BYTES_MAX:
            raise TooManyCommands(len(self._awaited))
        number = next(self._ids)
        awaited: asyncio.Future[StateAnswer | wire.Refused] = asyncio.get_running_loop().create_future()
        self._awaited[number] = awaited
        try:
            self._writer.write(wire.frame(wire.AskState(number, boot_seconds() + READ_SECONDS, read)))
            async with asyncio.timeout(READ_SECONDS):
                answer = await awaited
        except TimeoutError:
            raise ReadLate(READ_SECONDS) from None
        finally:
            del self._awaited[number]
        if isinstance(answer, wire.Refused):
            raise answer.as_error()
        return answer

"""The HTTP process's end of the line for reads of states."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TypeVar

from snapreplay.api.line import in_time
from snapreplay.service.clock import boot_seconds
from snapreplay.service.control import wire
from snapreplay.service.control.key_history import KeyHistory, ReadKeyHistory
from snapreplay.service.control.partition_history import HISTORY_SECONDS, PartitionHistory, ReadHistory
from snapreplay.service.control.protocol import TooManyCommands
from snapreplay.service.control.savepoint_list import ReadSavepoints, SavepointList
from snapreplay.service.control.state_reads import READ_SECONDS, ReadLate, StateAnswer, StateRead

T = TypeVar("T")

READS_MAX = 64
UNSENT_BYTES_MAX = 256 * 1024  # a frozen service takes nothing
FROM_KAFKA_MAX = 4
FROM_KAFKA_SECONDS = HISTORY_SECONDS + 3.0  # less than a connection may take for a request
_Read = StateAnswer | wire.ReadFromKafka
_Answer = _Read | wire.Refused


class StateLink:
    """A `StateSource` whose service is at the other end of a stream. `run` it in the loop of the handlers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = count()
        self._awaited: dict[int, asyncio.Future[_Answer]] = {}
        self._from_kafka = 0

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
        answer = await self._ask(read, READ_SECONDS)
        assert isinstance(answer, StateAnswer)  # noqa: S101 - what was asked for
        return answer

    async def history(self, partition: int) -> PartitionHistory:
        return await self._ask_kafka(ReadHistory(partition), PartitionHistory)

    async def key_history(self, read: ReadKeyHistory) -> KeyHistory:
        return await self._ask_kafka(read, KeyHistory)

    async def savepoints(self, name: str) -> SavepointList:
        return await self._ask_kafka(ReadSavepoints(name), SavepointList)

    async def _ask_kafka(self, read: wire.FromKafka, kind: type[T]) -> T:
        if self._from_kafka >= FROM_KAFKA_MAX:
            raise TooManyCommands(self._from_kafka)
        self._from_kafka += 1
        try:
            answer = await self._ask(read, FROM_KAFKA_SECONDS)
        finally:
            self._from_kafka -= 1
        assert isinstance(answer, kind)  # noqa: S101 - what was asked for
        return answer

    async def _ask(self, read: StateRead | wire.FromKafka, seconds: float) -> _Read:
        unsent_bytes = self._writer.transport.get_write_buffer_size()
        if len(self._awaited) >= READS_MAX or unsent_bytes > UNSENT_BYTES_MAX:
            raise TooManyCommands(len(self._awaited))
        number = next(self._ids)
        awaited: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._awaited[number] = awaited
        try:
            self._writer.write(wire.frame(wire.AskState(number, boot_seconds() + seconds, read)))
            if not await in_time(awaited, seconds):
                raise ReadLate(seconds)
        finally:
            del self._awaited[number]
        answer = awaited.result()
        if isinstance(answer, wire.Refused):
            raise answer.as_error()
        return answer

"""The service's end of the line for reads of states, in the loop of the runners, of whose time it takes a share."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import suppress

from snapreplay.service.clock import boot_seconds
from snapreplay.service.control import wire
from snapreplay.service.control.key_history import ReadKeyHistory
from snapreplay.service.control.partition_history import ReadHistory
from snapreplay.service.control.protocol import Control
from snapreplay.service.control.savepoint_list import ReadSavepoints
from snapreplay.service.control.state_reads import (
    BATCH_SECONDS,
    READ_SECONDS,
    BatchNotReached,
    BatchUnderWay,
    StateAnswer,
    StateRead,
)

log = logging.getLogger("snapreplay.http")

IDLE_TIMES = 5  # as long as it has read, so that a flood of reads takes at most a sixth of the loop
BURST_SECONDS = 0.005
LOOK_SECONDS = 0.005  # for a batch that is awaited


class StateLine:
    """Answers the reads of one HTTP process after the other. `attach` from any thread, the rest in the loop."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._free_at = 0.0
        self._one_from_kafka = asyncio.Semaphore(1)

    def attach(self, line: socket.socket) -> None:
        """Answer what comes over this socket, until its other end is gone."""
        self._loop.call_soon_threadsafe(self._begin, line)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, line: socket.socket) -> None:
        self._keep(self._loop.create_task(self._serve(line), name="state-reads"))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, line: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=line)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    (size,) = wire.LENGTH.unpack(await reader.readexactly(wire.LENGTH.size))
                    encoded = await reader.readexactly(size)
                    began = time.thread_time()  # of this thread alone: by the clock, a busy machine would end all reads
                    asked = wire.asked(encoded)
                    if isinstance(asked.read, wire.FromKafka):
                        self._keep(self._loop.create_task(self._from_kafka(asked, asked.read, writer)))
                        continue
                    answer = self._answer(asked, asked.read)
                    if answer is None:
                        self._keep(self._loop.create_task(self._answer_later(asked, asked.read, writer)))
                    else:
                        writer.write(answer)
                    self._charge(began)
                    await writer.drain()
                    await self._share()
        finally:
            writer.transport.abort()

    def _answer(self, asked: wire.AskState, read: StateRead, *, is_last: bool = False) -> bytes | None:
        """Answer now; None: not yet. Empty: nobody waits any more."""
        if boot_seconds() > asked.expires_at:
            return b""
        try:
            answer: StateAnswer | wire.Refused = self._control.read(read)
        except (BatchNotReached, BatchUnderWay) as error:
            if not is_last:
                return None
            answer = wire.Refused.because(error)
        except Exception as error:  # noqa: BLE001 - the other end answers with it
            answer = _refused(error)
        return wire.frame(wire.Answered(asked.id, answer))

    async def _from_kafka(self, asked: wire.AskState, read: wire.FromKafka, writer: asyncio.StreamWriter) -> None:
        """Read from Kafka, one thing at a time: the loop is the runners'."""
        async with self._one_from_kafka:
            if boot_seconds() > asked.expires_at:
                return
            try:
                answer: wire.ReadFromKafka | wire.Refused = await self._read(read)
            except Exception as error:  # noqa: BLE001 - the other end answers with it
                answer = _refused(error)
        with suppress(OSError):
            writer.write(wire.frame(wire.Answered(asked.id, answer)))
            await writer.drain()

    async def _read(self, read: wire.FromKafka) -> wire.ReadFromKafka:
        match read:
            case ReadHistory(partition):
                return await self._control.history(partition)
            case ReadKeyHistory():
                return await self._control.key_history(read)
            case ReadSavepoints(name):
                return await self._control.savepoints(name)

    def _charge(self, began: float) -> None:
        """Note how long was read."""
        spent_seconds = time.thread_time() - began
        self._free_at = max(self._free_at, self._loop.time()) + IDLE_TIMES * spent_seconds

    async def _answer_later(self, asked: wire.AskState, read: StateRead, writer: asyncio.StreamWriter) -> None:
        until = asked.expires_at - READ_SECONDS + BATCH_SECONDS
        answer = None
        while answer is None:
            # Any number may wait: together they take no more of the loop than other reads.
            await asyncio.sleep(max(LOOK_SECONDS, self._free_at - self._loop.time()))
            began = time.thread_time()
            answer = self._answer(asked, read, is_last=boot_seconds() > until)
            self._charge(began)
        with suppress(OSError):
            writer.write(answer)
            await writer.drain()

    async def _share(self) -> None:
        """Leave the loop to others, for as long as was read too much."""
        ahead_seconds = self._free_at - self._loop.time()
        if ahead_seconds > BURST_SECONDS:
            await asyncio.sleep(ahead_seconds)


def _refused(error: Exception) -> wire.Refused:
    """Return the refusal of a read."""
    refused = wire.Refused.because(error)
    if refused.error == wire.DEFECT:
        log.error("a state could not be read", exc_info=error)
    return refused

"""A TCP proxy in front of one broker that loses, holds back or repeats chosen requests.

Kafka clients connect to the addresses that brokers advertise, so `through` sends aiokafka's connections to the
broker's port here instead; nothing else of the client changes.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from unittest import mock

import aiokafka.client
import aiokafka.conn

PRODUCE, METADATA, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 3, 22, 24, 26

Fault = Callable[[int], str]
"""API key of a request → "pass", "cut" (sent on, then the connection dies), "mute" (its answer never comes),
"drop" (never sent on, the connection dies)."""


class Proxy:
    """One broker behind it. `seen` counts requests by API key; `fault` decides on each."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._host, _, port = bootstrap_servers.rpartition(":")
        self._port = int(port)
        self.port = 0
        self.fault: Fault = lambda _: "pass"
        self.seen: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        """While this is open, aiokafka's new connections to the broker pass the proxy."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        connect = aiokafka.conn.create_conn

        async def detour(host, port, **keywords):
            return await connect(host, self.port if port == self._port else port, **keywords)

        try:
            with mock.patch.object(aiokafka.client, "create_conn", detour):
                yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        muted: set[int] = set()
        broker_reader, broker_writer = await asyncio.open_connection(self._host, self._port)
        back = asyncio.create_task(self._answers(broker_reader, writer, muted))
        try:
            with contextlib.suppress(OSError, EOFError):
                await self._requests(reader, broker_writer, muted)
        finally:
            back.cancel()
            for stream in (writer, broker_writer):
                stream.close()

    async def _requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, muted: set[int]
    ) -> None:
        while True:
            size = await reader.readexactly(4)
            body = await reader.readexactly(struct.unpack(">i", size)[0])
            key, _, correlation_id = struct.unpack(">hhi", body[:8])
            self.seen[key] = self.seen.get(key, 0) + 1
            verdict = self.fault(key)
            if verdict == "drop":
                return
            if verdict == "mute":
                muted.add(correlation_id)
            broker.write(size + body)
            await broker.drain()
            if verdict == "cut":
                return

    async def _answers(
        self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter, muted: set[int]
    ) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                size = await broker.readexactly(4)
                body = await broker.readexactly(struct.unpack(">i", size)[0])
                if struct.unpack(">i", body[:4])[0] not in muted:
                    writer.write(size + body)
                    await writer.drain()
        writer.close()


def once(api_key: int, verdict: str) -> Fault:
    """A fault that hits the first such request only."""
    left = [1]

    def fault(key: int) -> str:
        if key == api_key and left[0]:
            left[0] -= 1
            return verdict
        return "pass"

    return fault

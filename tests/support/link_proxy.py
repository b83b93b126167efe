"""The same cuts without rights of any kind: every connection between three brokers and their clients goes through a
proxy, which holds back what is cut.

What differs from dropped packets: a connection that is begun during a cut is accepted, and then nothing passes.
Otherwise the same: nothing is refused, nothing is closed, and what was sent meanwhile arrives after the healing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from snapreplay.devbroker.ports import free_ports
from snapreplay.devbroker.properties import HOST, Node
from tests.support.deadlines import scaled
from tests.support.flows import CLIENTS, Direction, Flow, Side, flows

T = TypeVar("T")
PIECE_BYTES = 65_536
ANSWER_S = scaled(10.0)


class LinkProxies:
    """Two proxies per broker: one for clients and peers, one for controllers. Usable from any thread."""

    kind = "TCP proxies"

    def __init__(self, size: int, pids: Callable[[], Sequence[int]]) -> None:
        """`pids` gives the process ids of the brokers at the moment: who comes from where is known by process."""
        ports = free_ports(4 * size)
        self.nodes: Sequence[Node] = [
            Node(n + 1, *ports[4 * n : 4 * n + 2], reached_at=(ports[4 * n + 2], ports[4 * n + 3]))
            for n in range(size)
        ]
        self._pids = pids
        self._cut: frozenset[Flow] = frozenset()
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._listen())

    def cut(self, broker: int, side: Side, direction: Direction = "both") -> None:
        """Hold back every byte between `broker` and its `side`, on top of what is cut already."""
        self._do(self._set(self._cut | flows(broker, side, direction, len(self.nodes))))

    def heal(self) -> None:
        """Everything passes again."""
        self._do(self._set(frozenset()))

    def close(self) -> None:
        """No listener, connection or thread is left."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

    async def _listen(self) -> None:
        for number, node in enumerate(self.nodes):
            outer = node.reached_at or (0, 0)
            for port, target in zip(outer, (node.port, node.controller_port), strict=True):
                accept = self._acceptor(number, target)
                self._servers.append(await asyncio.start_server(accept, HOST, port))

    def _acceptor(self, number: int, port: int) -> Any:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._serve(number, port, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accept

    async def _serve(
        self, number: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        ends = writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1]
        source = self._who(*ends)
        with contextlib.closing(writer), contextlib.suppress(OSError):
            await self._until_whole((source, number))
            inner_reader, inner_writer = await asyncio.open_connection(HOST, port)
            with contextlib.closing(inner_writer):
                pumps = [
                    asyncio.create_task(self._pump((source, number), reader, inner_writer)),
                    asyncio.create_task(self._pump((number, source), inner_reader, writer)),
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.wait(pumps)

    async def _pump(
        self, flow: Flow, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                await self._until_whole(flow)
                writer.write(piece)
                await writer.drain()
            await self._until_whole(flow)  # an end is news, too

    async def _until_whole(self, flow: Flow) -> None:
        if flow in self._cut:
            async with self._changed:
                await self._changed.wait_for(lambda: flow not in self._cut)

    def _who(self, theirs: int, ours: int) -> int:
        """The broker that has the other end of a connection with these two ports, or the clients."""
        socket = _socket_of(theirs, ours)
        for number, pid in enumerate(self._pids()):
            with contextlib.suppress(OSError):
                folder = f"/proc/{pid}/fd"
                if any(_target(f"{folder}/{name}") == socket for name in os.listdir(folder)):  # noqa: PTH208 - as below
                    return number
        return CLIENTS

    async def _set(self, cut: frozenset[Flow]) -> None:
        async with self._changed:
            self._cut = cut
            self._changed.notify_all()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _socket_of(local_port: int, remote_port: int) -> str:
    """As the links in /proc/PID/fd name it. By hand: psutil takes 100 ms for one process, which elections notice."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{local_port:04X}") and fields[2].endswith(f":{remote_port:04X}"):
            return f"socket:[{fields[9]}]"
    return "nobody's"


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - a Path for each of hundreds would cost more than the link
    except OSError:
        return ""

"""Three real brokers whose network can be cut: between them, and between them and everybody else.

with three_brokers() as three:
    three.cut(0, "peers")              # still there for clients: a stale leader
    three.cut(1, "clients", "out")     # hears, and its answers are lost
    three.heal()
    three.die(2)                       # as a machine without power: no RST, no FIN

Every connection goes through a wire, which a cut holds. As with dropped packets nothing is refused, nothing is closed,
and what was sent meanwhile arrives after the healing. A connection that is begun during a cut is accepted, and then
nothing passes.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.properties import HOST, Node
from tests.support.deadlines import scaled
from tests.support.local_cluster import LocalCluster
from tests.support.wire import Direction, Streams, Wire, listening, loop_of_wires

SIZE = 3
START_S = scaled(120.0)
CLIENTS = -1
"""Everybody who is no broker. Brokers count from 0."""

Side = Literal["peers", "clients"]
Flow = tuple[int, int]
"""From, to."""
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
ALL_STATES = 0xFFFFFFFF
INODE_AT = 16 + 4 + 48 + 16
"""In the answer: behind its header, what the socket does, its ends, and four numbers."""


def flows(broker: int, side: Side, direction: Direction, size: int) -> frozenset[Flow]:
    """The ways between `broker` and one side of it; "in" is towards the broker."""
    others = [CLIENTS] if side == "clients" else [n for n in range(size) if n != broker]
    inwards = {(other, broker) for other in others} if direction != "out" else set()
    outwards = {(broker, other) for other in others} if direction != "in" else set()
    return frozenset(inwards | outwards)


class Links:
    """Two addresses per broker: one for clients and peers, one for controllers. Usable from any thread."""

    def __init__(self, size: int, pids: Callable[[], Sequence[int]]) -> None:
        """`pids` gives the process ids of the brokers at the moment: who comes from where is known by process."""
        ports = free_ports(4 * size)
        self.nodes: Sequence[Node] = [
            Node(n + 1, *ports[4 * n : 4 * n + 2], reached_at=(ports[4 * n + 2], ports[4 * n + 3])) for n in range(size)
        ]
        self._pids = pids
        self._cut: frozenset[Flow] = frozenset()
        self._wires: dict[tuple[int, int, int], Wire] = {}
        self._looks, self._owners = 0, dict[str, int]()
        self._listeners = contextlib.AsyncExitStack()
        self._kept = contextlib.ExitStack()
        self._run = self._kept.enter_context(loop_of_wires())
        self._kept.callback(lambda: self._run(self._listeners.aclose()))
        self._run(self._listen())

    def cut(self, broker: int, side: Side, direction: Direction = "both") -> None:
        """Hold back every byte between `broker` and its `side`, on top of what is cut already."""
        self._run(self._set(self._cut | flows(broker, side, direction, len(self.nodes))))

    def heal(self) -> None:
        """Everything passes again."""
        self._run(self._set(frozenset()))

    def close(self) -> None:
        """No listener, connection or thread is left."""
        self._kept.close()

    async def _listen(self) -> None:
        for number, node in enumerate(self.nodes):
            for outer, inner in zip(node.reached_at or (), (node.port, node.controller_port), strict=True):
                carry = partial(self._carry, number, inner)
                await self._listeners.enter_async_context(listening(HOST, outer, carry))

    async def _carry(self, number: int, port: int, client: Streams) -> None:
        ends = (client[1].get_extra_info(name)[1] for name in ("peername", "sockname"))
        key = (await self._who(*ends), number, port)
        if key not in self._wires:
            self._wires[key] = Wire((HOST, port))
            await self._follow(key)
        await self._wires[key].carry(client)

    async def _set(self, cut: frozenset[Flow]) -> None:
        self._cut = cut
        for key in list(self._wires):
            await self._follow(key)

    async def _follow(self, key: tuple[int, int, int]) -> None:
        """A wire carries the requests of one to the other, and the answers back."""
        source, number, _ = key
        match (source, number) in self._cut, (number, source) in self._cut:
            case True, True:
                await self._wires[key].cut("both")
            case True, False:
                await self._wires[key].cut("in")
            case False, True:
                await self._wires[key].cut("out")
            case _:
                await self._wires[key].heal()

    async def _who(self, theirs: int, ours: int) -> int:
        """The broker that has the other end of a connection with these two ports, or the clients.

        One look serves all connections that wait for it. With a look for each, thousands of connections that hang in
        a cut kept the loop so busy that it accepted no more.
        """
        link, looks = _socket_of(theirs, ours), self._looks
        await asyncio.sleep(0)  # so that all that have just come wait for the same look
        if self._looks == looks:
            self._looks += 1
            self._owners = self._sockets()
        return self._owners.get(link, CLIENTS)

    def _sockets(self) -> dict[str, int]:
        """All open files of the brokers, each with its broker."""
        found = dict[str, int]()
        for number, pid in enumerate(self._pids()):
            with contextlib.suppress(OSError):
                folder = f"/proc/{pid}/fd"
                found |= {_target(f"{folder}/{name}"): number for name in os.listdir(folder)}  # noqa: PTH208 - as below
        return found


def _socket_of(local_port: int, remote_port: int) -> str:
    """Name a socket as the links in /proc/PID/fd do. Asked by netlink (sock_diag): /proc/net/tcp is slow where many
    connections are, and psutil takes 100 ms for one process; elections notice both."""
    here = socket.inet_aton(HOST).ljust(16, b"\0")
    ends = struct.pack(">HH", local_port, remote_port) + here + here
    asked = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, ALL_STATES) + ends
    asked += struct.pack("=Iq", 0, -1)  # any interface, no cookie
    header = struct.pack("=IHHII", 16 + len(asked), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + asked)
        answer = kernel.recv(4096)
    if struct.unpack_from("=H", answer, 4) != (SOCK_DIAG_BY_FAMILY,):
        return "none"
    return f"socket:[{struct.unpack_from('=I', answer, INODE_AT)[0]}]"


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - a Path for each of hundreds would cost more than the link
    except OSError:
        return ""


class ThreeBrokers:
    """Brokers 0, 1, 2: their node ids are one more. Made by `three_brokers`."""

    def __init__(self, network: Links, cluster: LocalCluster) -> None:
        self._network = network
        self.cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def server(self, broker: int) -> str:
        return self.cluster.node(broker).bootstrap_server

    def cut(self, broker: int, side: Side, direction: Direction = "both") -> None:
        """Nothing passes between `broker` and its "peers" or "clients": "in" goes to it, "out" comes from it."""
        self._network.cut(broker, side, direction)

    def heal(self) -> None:
        """Repair every link that was cut."""
        self._network.heal()

    def die(self, broker: int) -> None:
        """SIGKILL without notice: the links are cut before, so that not even the kernel says goodbye.

        `heal` before `restart`.
        """
        self.cut(broker, "clients")
        self.cut(broker, "peers")
        self.kill(broker)

    def kill(self, broker: int) -> None:
        """SIGKILL; the kernel closes its connections, which clients notice at once."""
        self.cluster.node(broker).kill()

    def restart(self, broker: int) -> None:
        """Start it again on its data; returns when a transaction was committed through it: two must be there."""
        self.cluster.restart_node(broker)


@contextlib.contextmanager
def three_brokers(properties: Mapping[str, str] | None = None) -> Iterator[ThreeBrokers]:
    """Provide brokers for the length of the block; nothing of it is left afterwards, not even when this process is
    killed."""
    with contextlib.ExitStack() as kept:
        network = Links(SIZE, lambda: _pids(cluster))
        kept.callback(network.close)
        cluster = LocalCluster(SIZE, properties=properties, nodes=network.nodes, deadline_s=START_S, heap_mb=256)
        kept.enter_context(cluster)
        yield ThreeBrokers(network, cluster)


def _pids(cluster: LocalCluster) -> list[int]:
    try:
        return [cluster.node(number).pid for number in range(SIZE)]
    except RuntimeError:  # not all are launched: there are no connections
        return []

"""Three real brokers whose network can be cut: between them, and between them and everybody else.

with three_brokers() as three:
    three.cut(0, "peers")              # still there for clients: a stale leader
    three.cut(1, "clients", "out")     # hears, and its answers are lost
    three.heal()
    three.die(2)                       # as a machine without power: no RST, no FIN
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from snapreplay.devbroker.broker import LocalCluster
from tests.support.deadlines import scaled
from tests.support.flows import Direction, Side
from tests.support.links import Links

SIZE = 3
START_S = scaled(120.0)


class ThreeBrokers:
    """Brokers 0, 1, 2: their node ids are one more. Made by `three_brokers`."""

    def __init__(self, network: Links, cluster: LocalCluster) -> None:
        self._network = network
        self.cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def server(self, broker: int) -> str:
        """host:port of one of them."""
        return self.cluster.node(broker).bootstrap_server

    def cut(self, broker: int, side: Side, direction: Direction = "both") -> None:
        """Nothing passes between `broker` and its "peers" or "clients": "in" goes to it, "out" comes from it."""
        self._network.cut(broker, side, direction)

    def heal(self) -> None:
        """Make whatever was cut whole again."""
        self._network.heal()

    def die(self, broker: int) -> None:
        """SIGKILL, and nobody is told: the links are cut before, so that not even the kernel says goodbye.

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
        cluster = LocalCluster(
            SIZE, properties=properties, nodes=network.nodes, deadline_s=START_S, heap_mb=256
        )
        kept.enter_context(cluster)
        yield ThreeBrokers(network, cluster)


def _pids(cluster: LocalCluster) -> list[int]:
    """Return the ids of the brokers that were started so far."""
    try:
        return [cluster.node(number).pid for number in range(SIZE)]
    except RuntimeError:  # not all are launched: nobody has connected to anybody
        return []

"""Three real brokers whose network can be cut: between them, and between them and everybody else.

    with three_brokers() as three:
        three.cut(0, "peers")              # still there for clients: a stale leader
        three.cut(1, "clients", "out")     # hears, and its answers are lost
        three.heal()
        three.die(2)                       # as a machine without power: no RST, no FIN

`three.kind` says by what means: network namespaces, or TCP proxies where those are not allowed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from snapreplay.devbroker.cluster import LocalCluster
from snapreplay.devbroker.properties import Node
from tests.support.deadlines import scaled
from tests.support.flows import Direction, Side
from tests.support.link_proxy import LinkProxies
from tests.support.netns import Namespaces, NotAllowed

log = logging.getLogger(__name__)

SIZE = 3
START_S = scaled(120.0)


class Network(Protocol):
    """What can be done to the links. See `Namespaces` and `LinkProxies`."""

    @property
    def kind(self) -> str: ...
    @property
    def nodes(self) -> Sequence[Node]: ...
    def cut(self, broker: int, side: Side, direction: Direction = "both") -> None: ...
    def heal(self) -> None: ...
    def close(self) -> None: ...


class ThreeBrokers:
    """Brokers 0, 1, 2: their node ids are one more. Made by `three_brokers`."""

    def __init__(self, network: Network, cluster: LocalCluster) -> None:
        self._network = network
        self.cluster = cluster
        self.kind = network.kind

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def server(self, broker: int) -> str:
        """host:port of one of them."""
        return self.cluster.node(broker).bootstrap_server

    def cut(self, broker: int, side: Side, direction: Direction = "both") -> None:
        """Packets between `broker` and its "peers" or "clients" vanish: "in" those to it, "out" those from it."""
        self._network.cut(broker, side, direction)

    def heal(self) -> None:
        """Whatever was cut is whole again."""
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
def three_brokers(
    properties: Mapping[str, str] | None = None, *, proxies: bool = False
) -> Iterator[ThreeBrokers]:
    """Started, for the length of the block; nothing of it is left afterwards, not even when this process is killed.

    `proxies`: use them although namespaces may be had.
    """
    with contextlib.ExitStack() as kept:
        network = _network(proxies, lambda: _pids(cluster))
        kept.callback(network.close)
        cluster = LocalCluster(
            SIZE, properties=properties, nodes=network.nodes, deadline_s=START_S, heap_mb=256
        )
        kept.enter_context(cluster)
        log.info("three brokers, their links cut by %s", network.kind)
        yield ThreeBrokers(network, cluster)


def _network(proxies: bool, pids: Callable[[], list[int]]) -> Network:
    if not proxies:
        try:
            return Namespaces(SIZE)
        except NotAllowed as why:
            log.warning("no network namespaces, TCP proxies instead: %s", why)
    return LinkProxies(SIZE, pids)


def _pids(cluster: LocalCluster) -> list[int]:
    """Of the brokers that were started so far."""
    try:
        return [cluster.node(number).pid for number in range(SIZE)]
    except RuntimeError:  # not all are launched: nobody has connected to anybody
        return []

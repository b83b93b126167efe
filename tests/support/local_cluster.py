"""Several local brokers as one cluster, or one broker that listens where a test says."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.devbroker.files import KafkaFiles, new_id
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.node import LocalNode, StartDeadline
from snapreplay.devbroker.properties import Node


class LocalCluster(LocalBroker):
    """A cluster of `size` brokers with temporary data, each one also a controller. With three or more, topics have
    three replicas, of which two must be in sync. `nodes`: where each broker listens; None: on free ports of
    127.0.0.1."""

    def __init__(self, size: int = 3, *, nodes: Sequence[Node] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._size, self._given = size, nodes
        self._nodes: list[LocalNode] = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_server for node in self._all())

    def node(self, number: int) -> LocalNode:
        """Return broker `number`, from 0: its `pid`, `log_path`, `kill()`."""
        return self._all()[number]

    def restart_node(self, number: int) -> None:
        """Start broker `number` again on its port and data, killing it first if it runs. Return once a transaction was
        committed through it."""
        self.node(number).restart(self._patience())

    def stop(self) -> None:
        """End all brokers; several by SIGKILL: otherwise the last ones would wait for a quorum that is already gone."""
        nodes, self._nodes, self._node = self._nodes, [], None
        if nodes:
            with ThreadPoolExecutor(len(nodes)) as pool:
                list(pool.map(partial(LocalNode.close, orderly=self._size == 1), nodes))

    def _launch(self, kafka: KafkaFiles, patience: StartDeadline) -> None:
        addresses, cluster_id = self._given or self._on_free_ports(), new_id()
        for address in addresses:
            node = LocalNode(kafka, address, self._heap_mb)
            self._nodes.append(node)
            node.prepare(addresses, cluster_id, None, self._properties)
            node.launch()
        self._node = self._nodes[0]
        for node in self._nodes:
            node.wait_started(patience)
        self._node.wait_ready(patience)

    def _on_free_ports(self) -> list[Node]:
        ports = free_ports(2 * self._size)
        return [Node(n + 1, ports[2 * n], ports[2 * n + 1]) for n in range(self._size)]

    def _all(self) -> list[LocalNode]:
        if not self._nodes:
            raise RuntimeError("the local cluster is not started")
        return self._nodes

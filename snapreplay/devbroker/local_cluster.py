"""Real Kafka brokers as children of this process; they end with it."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from snapreplay.devbroker import jars
from snapreplay.devbroker.errors import LocalBrokerUnavailable
from snapreplay.devbroker.files import KafkaFiles, new_id
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.node import LocalNode, PortTaken, StartDeadline
from snapreplay.devbroker.properties import Node

_PORT_TRIES = 5


class LocalCluster:
    """A cluster of `size` brokers, each one also a controller, that listen on 127.0.0.1 only unless `nodes` says
    otherwise.

    With three or more brokers, topics have three replicas and two must be in sync. The brokers end
    with this process, even after a SIGKILL, and their temporary directories are removed. Usable
    from plain code (`with`) and from asyncio (`async with`; every other method blocks), by one
    thread at a time.

    Args:
        size: the number of brokers.
        data_dir: where to keep the data; the next cluster may use it again. None: a temporary
            directory, removed at the end.
        properties: server.properties to add or to change.
        heap_mb: the largest heap of each JVM, MiB.
        deadline_s: the time limit of `start` and of each restart, seconds; fetching jars does not count.
        report: called with one line before and one after the jars are fetched, if they must be.
        nodes: where each broker listens, if not on free ports of 127.0.0.1; `size` of them.
        version: of Kafka, such as "3.9.1", fetched at its first use; None: the one in pom.xml.
    """

    def __init__(  # noqa: PLR0913 - each keyword is one property of the cluster that some caller sets
        self,
        size: int = 3,
        *,
        data_dir: Path | None = None,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 384,
        deadline_s: float = 60.0,
        report: jars.Say = jars.to_stderr,
        nodes: Sequence[Node] | None = None,
        version: str | None = None,
    ) -> None:
        self._version = version
        self._size = size
        self._given_nodes = nodes
        self._data_dir = data_dir.absolute() if data_dir else None
        self._properties = dict(properties or {})
        self._heap_mb = heap_mb
        self._deadline_s = deadline_s
        self._report = report
        self._abandoned = threading.Event()
        self._nodes: list[LocalNode] = []

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients, "host:port,…"; restarts do not change them."""
        return ",".join(node.bootstrap_server for node in self._started())

    def node(self, number: int) -> LocalNode:
        """Return broker `number`, from 0: its `pid`, `log_path`, `kill()`."""
        return self._started()[number]

    def restart_node(self, number: int) -> None:
        """Start broker `number` again on its port and data, killing it first if it runs.

        Returns once a transaction was committed through it. Raises LocalBrokerFailed.
        """
        self._started()[number].restart(StartDeadline(self._deadline_s, self._abandoned))

    def start(self) -> None:
        """Start all brokers and return once a transaction was committed.

        Raises LocalBrokerUnavailable (a tool or the jars are missing) or LocalBrokerFailed (a
        broker ended or was too slow; its log is kept).
        """
        if self._nodes:
            raise RuntimeError("the local cluster is already started")
        kafka = jars.ensure(self._report, self._version)
        patience = StartDeadline(self._deadline_s, self._abandoned)
        for _ in range(_PORT_TRIES):
            try:
                self._start_on(self._given_nodes or self._on_free_ports(), kafka, patience)
            except PortTaken:
                self.stop()
            except BaseException:
                self.stop()
                raise
            else:
                return
        message = f"other programs took the local broker's ports {_PORT_TRIES} times in a row"
        raise LocalBrokerUnavailable(message, "see what listens with `ss -ltnp`, then try again")

    def stop(self) -> None:
        """End all brokers by SIGTERM, and after 15 s by SIGKILL. A second call does nothing.

        Several brokers with temporary data get SIGKILL at once: otherwise the last ones would wait
        for a quorum that is already gone.
        """
        nodes, self._nodes = self._nodes, []
        orderly = self._size == 1 or self._data_dir is not None
        if nodes:
            with ThreadPoolExecutor(len(nodes)) as pool:
                list(pool.map(lambda node: node.close(orderly=orderly), nodes))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            # The thread cannot be cancelled. It sees the flag at its next check, stops all brokers and ends.
            self._abandoned.set()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _on_free_ports(self) -> list[Node]:
        ports = free_ports(2 * self._size)
        return [Node(n + 1, ports[2 * n], ports[2 * n + 1]) for n in range(self._size)]

    def _start_on(
        self, addresses: Sequence[Node], kafka: KafkaFiles, patience: StartDeadline
    ) -> None:
        cluster_id = new_id()
        for address in addresses:
            node = LocalNode(kafka, address, self._heap_mb)
            self._nodes.append(node)
            node.prepare(addresses, cluster_id, self._data_dir_of(address), self._properties)
            node.launch()
        for node in self._nodes:
            node.wait_started(patience)
        self._nodes[0].wait_ready(patience)

    def _data_dir_of(self, address: Node) -> Path | None:
        if self._data_dir is None or self._size == 1:
            return self._data_dir
        return self._data_dir / f"node-{address.node_id}"

    def _started(self) -> list[LocalNode]:
        if not self._nodes:
            raise RuntimeError("the local cluster is not started")
        return self._nodes

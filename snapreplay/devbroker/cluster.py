"""Real Kafka brokers as children of this process; they are gone when this process is gone."""

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
from snapreplay.devbroker.node import LocalNode, PortTaken, StartDeadline
from snapreplay.devbroker.ports import free_ports
from snapreplay.devbroker.properties import Node

_PORT_TRIES = 5


class LocalCluster:
    """`size` brokers (each one a controller, too) that listen on 127.0.0.1 only, unless told.

    From three brokers on, topics have three copies of which two must be in sync. The brokers end
    with this process, also after its SIGKILL, and take their temporary directories along. Usable
    from plain code (`with`) and from asyncio (`async with`; every other method blocks), by one
    thread at a time.

    Args:
        size: the number of brokers.
        data_dir: where the data live, which then are kept and may be given again. None: a temporary
            directory, removed at the end.
        properties: server.properties to add or to change.
        heap_mb: the greatest heap of each JVM, MiB.
        deadline_s: the longest time for `start` and each restart, seconds, beside a fetch of jars.
        report: is given one line before the jars are fetched, if they must be, and one after.
        nodes: where each broker listens, if not on free ports of 127.0.0.1; `size` of them.
        version: of Kafka, such as "3.9.1", fetched at its first use; None: the usual one.
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
        """The addresses for clients, "host:port,…"; they stay the same over restarts."""
        return ",".join(node.bootstrap_server for node in self._started())

    def node(self, number: int) -> LocalNode:
        """Broker `number`, from 0: its `pid`, `log_path`, `kill()`."""
        return self._started()[number]

    def restart_node(self, number: int) -> None:
        """Start broker `number` again on its port and data, killing it first if it runs.

        Returns when a transaction was committed through it. Raises LocalBrokerFailed.
        """
        self._started()[number].restart(StartDeadline(self._deadline_s, self._abandoned))

    def start(self) -> None:
        """Start all brokers and return when a transaction was committed.

        Raises LocalBrokerUnavailable (a tool or the jars cannot be had) or LocalBrokerFailed (a
        broker ended or was too slow; its log is kept).
        """
        if self._nodes:
            raise RuntimeError("it is started already")
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
        message = f"Other programs took the local broker's ports, {_PORT_TRIES} times in a row."
        raise LocalBrokerUnavailable(message, "Try again; see what listens with: ss -ltnp")

    def stop(self) -> None:
        """End all brokers: SIGTERM, 15 s of patience, SIGKILL. Nothing happens a second time.

        Several brokers with temporary data get the SIGKILL at once: the last ones would wait for a
        quorum that has left before them.
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
            # The thread cannot be cancelled: it sees this at its next look, stops all and ends.
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
            raise RuntimeError("it is not started")
        return self._nodes

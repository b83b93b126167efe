"""A real Kafka broker as a child of this process: ready in about a second, and it ends with the process.

    with LocalBroker() as broker:                 # or: async with LocalBroker() as broker:
        print(broker.bootstrap_servers)           # 127.0.0.1:23071

docs/internals/local-broker.md says what it costs and what it is not for.
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypedDict, Unpack

from snapreplay.devbroker import jars
from snapreplay.devbroker.files import KafkaFiles, LocalBrokerUnavailable, new_id
from snapreplay.devbroker.free_ports import free_ports, is_free_soon
from snapreplay.devbroker.node import LocalNode, PortTaken, StartDeadline
from snapreplay.devbroker.properties import HOST, Node
from snapreplay.errors import UsageError

_PORT_TRIES = 5


class LocalCluster:
    """A cluster of `size` brokers, each one also a controller, that listen on 127.0.0.1 only unless `nodes` says
    otherwise.

    With three or more brokers, topics have three replicas and two must be in sync. The brokers end with this process,
    even after a SIGKILL, and their temporary directories are removed. Usable from plain code (`with`) and from asyncio
    (`async with`; every other method blocks), by one thread at a time.

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

    def __init__(
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
        raise LocalBrokerUnavailable(message, "find these programs with `ss -ltnp`, then try again")

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

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        thread = ThreadPoolExecutor(1)
        try:
            await asyncio.get_running_loop().run_in_executor(thread, self.start)
        except asyncio.CancelledError:
            # The thread cannot be cancelled. It sees the flag at its next check and stops all brokers; if it has passed
            # its last check, they are stopped once they have started.
            self._abandoned.set()
            thread.submit(self.stop)
            raise
        finally:
            thread.shutdown(wait=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _on_free_ports(self) -> list[Node]:
        ports = free_ports(2 * self._size)
        return [Node(n + 1, ports[2 * n], ports[2 * n + 1]) for n in range(self._size)]

    def _start_on(self, addresses: Sequence[Node], kafka: KafkaFiles, patience: StartDeadline) -> None:
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


KEEP_OLD_RECORDS = {"log.retention.ms": "-1"}
"""Input with old record times is normal in development and in tests: default retention would delete it."""


class _Options(TypedDict, total=False):
    """The options of a cluster that one broker has, too."""

    data_dir: Path | None
    properties: Mapping[str, str] | None
    heap_mb: int
    deadline_s: float
    report: jars.Say
    version: str | None


class LocalBroker(LocalCluster):
    """A cluster of one broker; all topics have one replica. The arguments are LocalCluster's, and `port`, at which it
    listens; 0: a free one."""

    def __init__(self, *, port: int = 0, **options: Unpack[_Options]) -> None:
        super().__init__(1, **options)
        self._port = port

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM; a new one after each `restart`."""
        return self.node(0).pid

    @property
    def log_path(self) -> Path:
        """The broker's log; removed at `stop` unless the broker failed."""
        return self.node(0).log_path

    def kill(self) -> None:
        """Send SIGKILL to the broker, as in a crash; return when it is gone. The data stays."""
        self.node(0).kill()

    def restart(self) -> None:
        """Start it again on the same port and data, killing it first if it runs.

        Returns when it has committed a transaction (2.5 s). Raises LocalBrokerFailed.
        """
        self.restart_node(0)

    def _on_free_ports(self) -> list[Node]:
        """Choose the ports, or raise UsageError: another program listens on the port that was asked for."""
        if not self._port:
            return super()._on_free_ports()
        if not is_free_soon(self._port):
            raise UsageError(
                f"the local broker cannot listen on {HOST}:{self._port}: another program does",
                hint="`ss -ltnp` shows which; name another port, or 0 for a free one",
                port=self._port,
            )
        return [Node(1, self._port, free_ports(1)[0])]

"""A real Kafka broker as a child of this process: ready in about a second, and it ends with the process.

    with LocalBroker() as broker:                 # or: async with LocalBroker() as broker:
        print(broker.bootstrap_servers)           # 127.0.0.1:23071

docs/internals/local-broker.md says what it costs and what it is not for.
"""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from snapreplay.devbroker import jars
from snapreplay.devbroker.files import KafkaFiles, LocalBrokerUnavailable, new_id
from snapreplay.devbroker.free_ports import free_ports, is_free_soon
from snapreplay.devbroker.node import LocalNode, PortTaken, StartDeadline
from snapreplay.devbroker.properties import HOST, Node
from snapreplay.errors import UsageError

_PORT_TRIES = 5


KEEP_OLD_RECORDS = {"log.retention.ms": "-1"}
"""Input with old record times is normal in development and in tests: default retention would delete it."""


class LocalBroker:
    """A broker that is also the controller, and listens on 127.0.0.1 only; all topics have one replica.

    It ends with this process, even after a SIGKILL, and its temporary directory is removed. Usable from plain code
    (`with`) and from asyncio (`async with`; every other method blocks), by one thread at a time.

    Args:
        port: at which it listens; 0: a free one.
        data_dir: where to keep the data; the next broker may use it again. None: a temporary
            directory, removed at the end.
        properties: server.properties to add or to change.
        heap_mb: the largest heap of the JVM, MiB.
        deadline_s: the time limit of `start` and of each restart, seconds; fetching jars does not count.
        report: called with one line before and one after the jars are fetched, if they must be.
        version: of Kafka, such as "3.9.1", fetched at its first use; None: the one in pom.xml.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        data_dir: Path | None = None,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 384,
        deadline_s: float = 60.0,
        report: jars.Say = jars.to_stderr,
        version: str | None = None,
    ) -> None:
        self._port = port
        self._version = version
        self._data_dir = data_dir.absolute() if data_dir else None
        self._properties = dict(properties or {})
        self._heap_mb = heap_mb
        self._deadline_s = deadline_s
        self._report = report
        self._abandoned = threading.Event()
        self._node: LocalNode | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, "host:port"; a restart does not change it."""
        return self._started().bootstrap_server

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM; a new one after each `restart`."""
        return self._started().pid

    @property
    def log_path(self) -> Path:
        """The broker's log; removed at `stop` unless the broker failed."""
        return self._started().log_path

    def kill(self) -> None:
        """Send SIGKILL to the broker, as in a crash; return when it is gone. The data stays."""
        self._started().kill()

    def restart(self) -> None:
        """Start it again on the same port and data, killing it first if it runs.

        Returns when it has committed a transaction (2.5 s). Raises LocalBrokerFailed.
        """
        self._started().restart(self._patience())

    def start(self) -> None:
        """Start it and return once a transaction was committed.

        Raises LocalBrokerUnavailable (a tool or the jars are missing) or LocalBrokerFailed (it
        ended or was too slow; its log is kept).
        """
        if self._node is not None:
            raise RuntimeError("the local broker is already started")
        kafka, patience = jars.ensure(self._report, self._version), self._patience()
        for _ in range(_PORT_TRIES):
            try:
                self._launch(kafka, patience)
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
        """End it by SIGTERM, and after 15 s by SIGKILL. A second call does nothing."""
        node, self._node = self._node, None
        if node is not None:
            node.close()

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
            # The thread cannot be cancelled. It sees the flag at its next check and stops the broker; if it has passed
            # its last check, the broker is stopped once it has started.
            self._abandoned.set()
            thread.submit(self.stop)
            raise
        finally:
            thread.shutdown(wait=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _patience(self) -> StartDeadline:
        return StartDeadline(self._deadline_s, self._abandoned)

    def _launch(self, kafka: KafkaFiles, patience: StartDeadline) -> None:
        address = self._address()
        self._node = node = LocalNode(kafka, address, self._heap_mb)
        node.prepare([address], new_id(), self._data_dir, self._properties)
        node.launch()
        node.wait_started(patience)
        node.wait_ready(patience)

    def _address(self) -> Node:
        """Choose the ports, or raise UsageError: another program listens on the port that was asked for."""
        if not self._port:
            return Node(1, *free_ports(2))
        if not is_free_soon(self._port):
            raise UsageError(
                f"the local broker cannot listen on {HOST}:{self._port}: another program does",
                hint="`ss -ltnp` shows which; name another port, or 0 for a free one",
                kafka_port=self._port,
            )
        return Node(1, self._port, free_ports(1)[0])

    def _started(self) -> LocalNode:
        if self._node is None:
            raise RuntimeError("the local broker is not started")
        return self._node

"""A real Kafka broker as a child of this process: ready in about a second, and it ends with the process.

    with LocalBroker() as broker:                 # or: async with LocalBroker() as broker:
        print(broker.bootstrap_servers)           # 127.0.0.1:23071

docs/local-broker.md says what it costs and what it is not for.
"""

from collections.abc import Mapping
from pathlib import Path

from snapreplay.devbroker import jars
from snapreplay.devbroker.free_ports import free_ports, is_free
from snapreplay.devbroker.local_cluster import LocalCluster
from snapreplay.devbroker.properties import HOST, Node
from snapreplay.errors import UsageError

KEEP_OLD_RECORDS = {"log.retention.ms": "-1"}
"""Input with old record times is normal in development and in tests: default retention would delete it."""


class LocalBroker(LocalCluster):
    """A cluster of one broker; all topics have one replica. The arguments are LocalCluster's, and `port`, at which it
    listens; 0: a free one."""

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 384,
        deadline_s: float = 60.0,
        report: jars.Say = jars.to_stderr,
        version: str | None = None,
    ) -> None:
        super().__init__(
            1,
            data_dir=data_dir,
            properties=properties,
            heap_mb=heap_mb,
            deadline_s=deadline_s,
            report=report,
            version=version,
        )
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
        if not is_free(self._port):
            raise UsageError(
                f"the local broker cannot listen on {HOST}:{self._port}: another program does",
                hint="`ss -ltnp` shows which; name another port, or 0 for a free one",
                port=self._port,
            )
        return [Node(1, self._port, free_ports(1)[0])]

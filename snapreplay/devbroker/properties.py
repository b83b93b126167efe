"""The broker's server.properties and its JVM's flags. Pure: nothing is read or started here.

The values make a broker small and quick, not durable. Each that differs from Kafka's default has its reason beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

HOST = "127.0.0.1"
# Three replicas, two of them in sync, is what people run; more brokers add no replicas.
_MAX_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Node:
    """One broker that is also a controller: its id (from 1), and its two ports on `host`. `reached_at`: the two ports
    at which others reach it, if a proxy forwards to it."""

    node_id: int
    port: int
    controller_port: int
    _: KW_ONLY
    host: str = HOST
    reached_at: tuple[int, int] | None = None

    @property
    def server(self) -> str:
        """The address for clients and other brokers, host:port."""
        return f"{self.host}:{self.reached_at[0] if self.reached_at else self.port}"

    @property
    def voter(self) -> str:
        """The address for the other controllers, id@host:port."""
        port = self.reached_at[1] if self.reached_at else self.controller_port
        return f"{self.node_id}@{self.host}:{port}"


QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # the quick compiler only: less memory, too


def server_properties(
    node: Node, nodes: Sequence[Node], data_dir: Path, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the properties of `node` in the cluster of `nodes` (itself included); `extra` wins."""
    replicas = min(_MAX_REPLICAS, len(nodes))
    in_sync = min(2, replicas)
    broker = f"PLAINTEXT://{node.host}:{node.port}"
    controller = f"CONTROLLER://{node.host}:{node.controller_port}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(other.voter for other in nodes),
        "listeners": f"{broker},{controller}",
        "advertised.listeners": f"PLAINTEXT://{node.server}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data_dir),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }
    return properties | _SMALL_AND_QUICK | dict(extra or {})


_SMALL_AND_QUICK = {
    # 50 partitions each by default, created at the first use; that takes time.
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    # A misspelt topic is an error, as on a cluster that is run with care.
    "auto.create.topics.enable": "false",
    # No waiting for further members; sessions short enough for take-over tests.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # After a kill the broker waits until its old registration has expired: 2.5 s, not 12 s.
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "300",
    # A cluster notices a follower that fell behind in 5 s, not 30.
    "replica.lag.time.max.ms": "5000",
    # A transaction whose owner died is aborted within a second after its timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # 128 MiB of heap by default.
    "log.cleaner.dedupe.buffer.size": "4194304",
    # Deleted topics free their space at once: a test session creates hundreds.
    "log.segment.delete.delay.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "2",
}


def as_file(properties: Mapping[str, str]) -> str:
    """Return the properties as the text of a Java properties file, sorted by key; all of it is ASCII."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in sorted(properties.items()))


def _escaped(value: str) -> str:
    # Java reads such a file as Latin-1: what is not ASCII is written as UTF-16 units, \uXXXX.
    units = value.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-16-be")
    numbers = (high << 8 | low for high, low in zip(units[::2], units[1::2], strict=True))
    text = "".join(chr(number) if number < 128 else f"\\u{number:04x}" for number in numbers)
    return f"\\{text}" if text.startswith(" ") else text


def jvm_flags(work_dir: Path, heap_mb: int, performance: str = QUICK_START) -> list[str]:
    """Return the flags of the JVM, which keep everything that it writes inside `work_dir`. `performance` is for its
    collector and compilers."""
    return [
        f"-Xms{min(64, heap_mb)}m",
        f"-Xmx{heap_mb}m",
        *performance.split(),
        "-XX:-UsePerfData",
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        # Native parts of the compression jars are unpacked here; a kill would leave them behind.
        f"-Djava.io.tmpdir={work_dir}",
        f"-XX:ErrorFile={work_dir}/jvm-crash.log",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        "-Dorg.slf4j.simpleLogger.showShortLogName=true",
        # 600 lines of configuration at each start would hide what matters.
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
        # Kafka asks log4j for its provider, which the class path lacks; this one is built in.
        "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory",
    ]

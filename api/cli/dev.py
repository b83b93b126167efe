"""The command `snapreplay dev`: everything that an app needs, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from snapreplay.api.cli.output import note
from snapreplay.api.server import HttpServer
from snapreplay.app.app import App
from snapreplay.app.ways import app_name
from snapreplay.devbroker.broker import KEEP_OLD_RECORDS, LocalBroker
from snapreplay.devbroker.errors import ToolsMissing
from snapreplay.devbroker.free_ports import is_free
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.program import run
from snapreplay.service.topics.requirements import ensure_topics

INSTEAD = (
    "do without the local broker, on a cluster that has the app's input and output topics: run"
    " `snapreplay topics ensure APP`, `snapreplay init APP` and `snapreplay run APP`,"
    " each with --bootstrap-servers HOST:PORT"
)
PORT_FILE = "snapreplay-dev-port"
"""In the data directory: the port of the last time. Kafka ignores files that it does not know."""


def run_dev(data_dir: Path | None, kafka_port: int, serve: Callable[[str], int]) -> int:
    """Run a local broker while `serve`, given its address, blocks; return what `serve` returns.

    Raises:
        LocalBrokerUnavailable: Java, Maven or the jars are missing, or the broker failed.
        UsageError: the port is taken.
    """
    port = kafka_port or _last_port(data_dir)
    try:
        with LocalBroker(
            data_dir=data_dir, port=port, properties=KEEP_OLD_RECORDS, report=note
        ) as broker:
            servers = broker.bootstrap_servers
            note(f"Kafka:    {servers}" + (f" in {data_dir}" if data_dir else ""))
            if data_dir is not None:
                (data_dir / PORT_FILE).write_text(servers.rpartition(":")[2])
            return serve(servers)
    except ToolsMissing as error:
        error.or_else(INSTEAD)
        raise


def _last_port(data_dir: Path | None) -> int:
    """Return the port of the last `dev` with this directory; 0 if there is none, or if another program listens
    there now."""
    if data_dir is None:
        return 0
    try:
        port = int((data_dir / PORT_FILE).read_text())
    except (OSError, ValueError):
        return 0
    if is_free(port):
        return port
    note(f"Kafka:    port {port} of the last time is taken, another one is used")
    return 0


def serve_app(
    app: App[Any], settings: Settings, servers: str, partitions: int, http: HttpServer
) -> int:
    """Make topics and genesis, then run the service until Ctrl-C or SIGTERM; return its exit code."""
    kafka = settings.kafka | {"bootstrap.servers": servers}
    here = settings.model_copy(update={"kafka": kafka})
    asyncio.run(_prepare(app, here, partitions))
    return run(app, here, http=http)


def end_with_parent() -> None:
    """Stop as by SIGTERM when standard input ends, as it does when the parent dies."""

    def wait() -> None:
        with suppress(OSError):
            # Not by sys.stdin: at the end of the process this thread would still hold its lock.
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


async def _prepare(app: App[Any], settings: Settings, partitions: int) -> None:
    cluster = KafkaCluster(settings)
    for line in await ensure_topics(app, settings, cluster, create_io_partitions=partitions):
        note(f"topic:    {line}")
    for line in await init_app(app, settings, cluster):
        note(f"genesis:  {line}")
    # A new broker has no coordinator of groups until the first question. Asked by the service, it logs errors.
    await cluster.member_count(app.app_id)
    name, at = (
        shlex.quote(app_name(app)),
        f"--bootstrap-servers {settings.kafka['bootstrap.servers']}",
    )
    note(f"feed it:  snapreplay feed {name} {app.inputs[0].name} {at}")
    for topic in app.outputs[:1]:
        note(f"watch it: snapreplay tail {name} {topic.name} --follow {at}")

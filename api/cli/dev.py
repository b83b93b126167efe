"""`snapreplay dev`: everything that an app needs, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from snapreplay.api.cli.output import note
from snapreplay.api.server import HttpServer
from snapreplay.app.app import App
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.devbroker.errors import ToolsMissing
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.program import run
from snapreplay.service.topics.requirements import ensure_topics

# Input with old record times is normal in development: default retention would delete it.
KEEP_OLD_RECORDS = {"log.retention.ms": "-1"}
INSTEAD = (
    "do without the local broker, on a cluster that has the app's input and output topics: run"
    " `snapreplay topics ensure APP`, `snapreplay init APP` and `snapreplay run APP`,"
    " each with --bootstrap-servers HOST:PORT"
)


def run_dev(
    app: App[Any], settings: Settings, partitions: int, data_dir: Path | None, http: HttpServer
) -> int:
    """Block until Ctrl-C or SIGTERM; return the exit code of the service.

    Raises:
        LocalBrokerUnavailable: Java, Maven or the jars are missing, or the broker failed.
    """
    try:
        with LocalBroker(data_dir=data_dir, properties=KEEP_OLD_RECORDS, report=note) as broker:
            note(f"Kafka:    {broker.bootstrap_servers}" + (f" in {data_dir}" if data_dir else ""))
            kafka = settings.kafka | {"bootstrap.servers": broker.bootstrap_servers}
            here = settings.model_copy(update={"kafka": kafka})
            asyncio.run(_prepare(app, here, partitions))
            return run(app, here, http=http)
    except ToolsMissing as error:
        error.or_else(INSTEAD)
        raise


async def _prepare(app: App[Any], settings: Settings, partitions: int) -> None:
    cluster = KafkaCluster(settings)
    for line in await ensure_topics(app, settings, cluster, create_io_partitions=partitions):
        note(f"topic:    {line}")
    for line in await init_app(app, settings, cluster):
        note(f"genesis:  {line}")

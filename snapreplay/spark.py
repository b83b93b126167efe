"""Spark on the own topics: the jobs, with the service's Kafka client in their tasks.

`pip install 'snapreplay[spark]'`, and a Java runtime 17 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from snapreplay.errors import UsageError
from snapreplay.service.blocking import BlockingReader
from snapreplay.service.config.settings import Settings
from snapreplay.snapshots.proof.partition import Level

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from snapreplay.snapshots.proof.report import AuditReport


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("snapreplay")` known; see `snapshots.jobs.source.TopicsSource` for its options."""
    from snapreplay.snapshots.jobs.source import TopicsSource  # noqa: PLC0415 - Spark is an extra

    spark.dataSource.register(
        type("Topics", (TopicsSource,), {"open_cluster": staticmethod(_reader)})
    )


def _reader(kafka: Mapping[str, str]) -> BlockingReader:
    return BlockingReader(Settings(kafka=dict(kafka)))


def audit(
    settings: Settings, app_id: str, level: Level = Level.INTEGRITY, app: str | None = None
) -> AuditReport:
    """Prove what the own topics of `app_id` hold at this moment; see `snapshots.jobs.audit.audit`.

    Raises:
        UsageError: Spark is not installed or does not start.
    """
    try:
        from snapreplay.snapshots.jobs.audit import audit as run  # noqa: PLC0415 - Spark is an extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"pyspark", "pyarrow", "pandas"}:
            raise
        raise UsageError(
            f"the audit needs Spark, but {missing} is not installed",
            hint="`pip install 'snapreplay[spark]'`, and install a Java runtime, version 17 or newer",
        ) from error
    kafka = {name: str(value) for name, value in settings.kafka.items()}
    return run(partial(BlockingReader, settings), kafka, app_id, level, app)

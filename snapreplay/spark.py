"""Spark on the own topics: the jobs, with the service's Kafka client in their tasks.

`pip install 'snapreplay[spark]'`, and a Java runtime 17 or newer.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from snapreplay.errors import UsageError
from snapreplay.service.blocking import BlockingClient, BlockingReader
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.snapshots.jobs.audit import Audited, audited, imported, replayable, report_of
from snapreplay.snapshots.jobs.compaction import CompactionReport, PartitionResult, compacted
from snapreplay.snapshots.jobs.fixed_logs import freeze
from snapreplay.snapshots.proof.report import AuditReport, Level

__all__ = ["Level", "audit", "compact"]


def compact(settings: Settings, app_id: str) -> CompactionReport:
    """Make a snapshot of the last batch of each partition, and propose it to the owner. The owners may run meanwhile.
    The Spark session is chosen as in `audit`.

    Returns one outcome per partition, in order. A partition whose state is not proven has a reason, and no proposal.

    Raises:
        UsageError: Spark is not installed or does not start.
        SnapreplayError: the job could not run: a topic is missing, no broker answers, a task failed. Some partitions
            may have a proposal.
    """
    with _needing_spark("the compaction"):
        from snapreplay.snapshots.jobs.session import check, spark_session, stopping  # noqa: PLC0415 - as above
        from snapreplay.snapshots.jobs.spark_tasks import for_each  # noqa: PLC0415 - as above
    started = time.monotonic()
    open_client = partial(BlockingClient, settings)
    check()
    with open_client() as client:  # before Spark is started for nothing
        moments = freeze(client, app_id)
    by = f"compact@{socket.gethostname()}/{os.getpid()}"
    with spark_session("snapreplay compact") as spark, stopping("compaction"):
        results = for_each(spark, moments, open_client, partial(compacted, app_id, by, wall_ms), PartitionResult)
    return CompactionReport(app_id, results, round(time.monotonic() - started, 3))


def audit(settings: Settings, app_id: str, level: Level = Level.INTEGRITY, app: str | None = None) -> AuditReport:
    """Prove the present contents of the increments and snapshots topics. The owners may write and trim meanwhile.

    Uses the Spark session of this process, or the cluster that spark-submit has chosen. Without either it starts a
    session (about 5 s) and stops it again.

    Args:
        level: what is proven; each level includes those before it.
        app: `module:app` or a path, as the tasks import it. Level REPLAY needs it.

    Returns the report; it is clean if `findings` is empty.

    Raises:
        UsageError: Spark is not installed or does not start, or the app is not that of `app_id`.
        SnapreplayError: the audit could not run: a topic is missing, no broker answers, a task failed.
    """
    with _needing_spark("the audit"):
        from snapreplay.snapshots.jobs.session import check, spark_session, stopping  # noqa: PLC0415 - as above
        from snapreplay.snapshots.jobs.spark_tasks import for_each  # noqa: PLC0415 - as above
    load = None
    if level is Level.REPLAY:
        load = partial(imported, app or "", replayable(app_id, app).version)
    check()
    started, open_reader = time.monotonic(), partial(BlockingReader, settings)
    with open_reader() as reader:
        moments = freeze(reader, app_id)
    with spark_session("snapreplay audit") as spark, stopping("audit"):
        parts = for_each(spark, moments, open_reader, partial(audited, app_id, level, load), Audited)
    return report_of(app_id, level, parts, time.monotonic() - started)


@contextmanager
def _needing_spark(what: str) -> Iterator[None]:
    """Raise UsageError if an import in this block failed because Spark is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"pyspark", "pyarrow", "pandas"}:
            raise
        raise UsageError(
            f"{what} needs Spark, but {missing} is not installed",
            hint="`pip install 'snapreplay[spark]'`, and install a Java runtime, version 17 or newer",
        ) from error

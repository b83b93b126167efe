"""Spark on the own topics: the jobs, with the service's Kafka client in their tasks.

`pip install 'snapreplay[spark]'`, and a Java runtime 17 or newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from snapreplay.errors import UsageError
from snapreplay.service.blocking import BlockingClient, BlockingProofs, BlockingReader
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.snapshots.proof.proven import Level

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from snapreplay.snapshots.jobs.compact import Owner
    from snapreplay.snapshots.jobs.compaction import CompactionReport
    from snapreplay.snapshots.proof.report import AuditReport

__all__ = ["Level", "audit", "compact", "draft_upgrade", "register"]


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("snapreplay")` known to this session. docs/spark.md has its views and options.

    `load()` fixes the moment that all actions on the DataFrame see. A wrong option fails it. An action fails if the log
    does not prove the state.
    """
    from snapreplay.snapshots.jobs.source import TopicsSource  # noqa: PLC0415 - Spark is an extra

    spark.dataSource.register(type("Topics", (TopicsSource,), {"open_cluster": staticmethod(_reader)}))


def _reader(kafka: Mapping[str, str]) -> BlockingReader:
    return BlockingReader(Settings(kafka=dict(kafka)), checks_seals=False)


def compact(
    settings: Settings,
    app_id: str,
    app: str | None = None,
    *,
    wait_s: float = 0.0,
    owner: Owner | None = None,
    master: str | None = None,
) -> CompactionReport:
    """Make a snapshot of the last batch of each partition, and propose it to the owner. The owners may run meanwhile.

    Uses the Spark session of this process. Without one it starts one (about 5 s) and stops it again.

    Args:
        app: `module:app` or a path, as the tasks import it; needed where batches recorded no changes.
        wait_s: how long to wait for the answers of the owners, in seconds; 0: not at all.
        owner: hears of the proposals; None: the owners find them by themselves.
        master: of a Spark cluster, such as `spark://HOST:7077`. None: this process, or what spark-submit has chosen.

    Returns one outcome per partition, in order. A partition whose state is not proven has no proposal and a reason.

    Raises:
        UsageError: Spark is not installed or does not start, or the app is not that of `app_id`.
        SnapreplayError: the job could not run: a topic is missing, no broker answers, a task failed. Nothing was
            proposed.
    """
    with _needing_spark("the compaction"):
        from snapreplay.snapshots.jobs.compact import compact as run  # noqa: PLC0415 - Spark is an extra
    kafka = {name: str(value) for name, value in settings.kafka.items()}
    client = partial(BlockingClient, settings)
    return run(client, kafka, app_id, wall_ms, app, wait_s=wait_s, owner=owner, master=master)


def draft_upgrade(settings: Settings, app: str, *, master: str | None = None) -> CompactionReport:
    """Carry the app's upgrades out on the last batch of each partition, and write the result as a draft.

    The owner that starts with this version takes it over. The owners of the older one may run meanwhile. Arguments,
    session and errors are those of `compact`.
    """
    with _needing_spark("the draft"):
        from snapreplay.snapshots.jobs.compact import draft_upgrade as run  # noqa: PLC0415 - Spark is an extra
    kafka = {name: str(value) for name, value in settings.kafka.items()}
    return run(partial(BlockingClient, settings), kafka, app, wall_ms, master)


def audit(
    settings: Settings,
    app_id: str,
    level: Level = Level.INTEGRITY,
    app: str | None = None,
    *,
    since_last: bool = False,
    master: str | None = None,
) -> AuditReport:
    """Prove what the app's own two topics hold at this moment. The owners may write and trim meanwhile.

    Uses the Spark session of this process. Without one it starts one (about 5 s) and stops it again.

    Args:
        level: what is proven; each level includes those before it.
        app: `module:app` or a path, as the tasks import it. Level REPLAY needs it.
        since_last: prove only what came after the last recorded proof, and record this one.
        master: of a Spark cluster, such as `spark://HOST:7077`. None: this process, or what spark-submit has chosen.

    Returns the report; it is clean if `findings` is empty.

    Raises:
        UsageError: Spark is not installed or does not start, or the app is not that of `app_id`.
        SnapreplayError: the audit could not run: a topic is missing, no broker answers, a task failed.
    """
    with _needing_spark("the audit"):
        from snapreplay.snapshots.jobs.audit import audit as run  # noqa: PLC0415 - Spark is an extra
    kafka = {name: str(value) for name, value in settings.kafka.items()}
    at_ms = wall_ms()
    proofs = BlockingProofs(settings, app_id, at_ms) if since_last else None
    open_reader = partial(BlockingReader, settings)
    report = run(open_reader, kafka, app_id, level, app, proofs=proofs, master=master)
    return msgspec.structs.replace(report, audited_at_ms=at_ms)


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

"""The compaction on Spark: its tasks fold and write, its own Kafka client reads back what they wrote."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

from snapreplay.app.load import checked_app
from snapreplay.snapshots.jobs.audit import SparkFailed
from snapreplay.snapshots.jobs.causes import cause
from snapreplay.snapshots.jobs.compaction import Compaction
from snapreplay.snapshots.jobs.compaction_report import CompactionReport
from snapreplay.snapshots.jobs.fixed_logs import LogClient, OpenClient, freeze
from snapreplay.snapshots.jobs.owner_answers import Nobody, Owner, answered
from snapreplay.snapshots.jobs.read import SPARK_ERRORS, KafkaSource
from snapreplay.snapshots.jobs.second_reading import witnessed
from snapreplay.snapshots.jobs.session import check, spark_session
from snapreplay.snapshots.jobs.spark_tasks import for_each
from snapreplay.snapshots.proof.moment import Moment
from snapreplay.snapshots.proof.partition import Newest
from snapreplay.state.digest import Digest

T = TypeVar("T")
NOBODY = Nobody()


def compact(  # noqa: PLR0913 - options of a command
    open_client: OpenClient,
    kafka: Mapping[str, str],
    app_id: str,
    now_ms: Callable[[], int],
    app: str | None = None,
    *,
    wait_s: float = 0.0,
    owner: Owner = NOBODY,
    master: str | None = None,
) -> CompactionReport:
    """Propose snapshots as `snapreplay.spark.compact` says. `kafka`: the service's client properties, for the witness.

    Raises:
        TopicMissing, Unreachable, JarsUnavailable, UsageError, TaskFailed, SparkFailed: it could not run. Nothing
            was proposed.
    """
    started = time.monotonic()
    check(master)
    with open_client() as client:  # before Spark is started for nothing
        freeze(client, app_id)
    if app is not None:
        checked_app(app, app_id)
    proposed_by = f"compact@{socket.gethostname()}/{os.getpid()}"
    with spark_session("snapreplay compact", master) as spark:
        engine = SparkEngine(spark, kafka)
        results = Compaction(engine, open_client, app_id, proposed_by, now_ms, app).run()
    results = answered(open_client, app_id, results, wait_s, owner)
    return CompactionReport(app_id, results, round(time.monotonic() - started, 3))


class SparkEngine:
    """A `compaction.Engine` on Spark."""

    def __init__(self, spark: SparkSession, kafka: Mapping[str, str]) -> None:
        self._spark = spark
        options = dict(kafka)
        self._source = KafkaSource(spark, options.pop("bootstrap.servers"), options)

    def for_each(
        self,
        parts: Sequence[Moment],
        open_client: OpenClient,
        work: Callable[[LogClient, Moment], object],
        kind: type[T],
    ) -> list[T]:
        try:
            return for_each(self._spark, parts, open_client, work, kind)
        except SPARK_ERRORS as error:
            raise _stopped(error) from error

    def witnessed(
        self, topic: str, partition_count: int, written: Mapping[int, Newest]
    ) -> dict[int, Digest]:
        try:
            return witnessed(self._spark, self._source, topic, partition_count, written)
        except SPARK_ERRORS as error:
            raise _stopped(error) from error


def _stopped(error: BaseException) -> SparkFailed:
    says, hint = cause(error)
    return SparkFailed(f"Spark stopped the compaction: {says}", hint=hint)

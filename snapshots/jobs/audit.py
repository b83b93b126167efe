"""The audit: checks, from the own topics alone, that what was written is whole and right.

Each partition is proved by one task. Then the newest snapshots are read once more by a witness that shares no client
with it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.load import checked_app, load_app
from snapreplay.errors import StopError, UsageError
from snapreplay.snapshots.jobs.fixed_logs import LogReader, OpenReader, PartitionLogs, freeze
from snapreplay.snapshots.jobs.second_reading import KafkaSource, witnessed
from snapreplay.snapshots.jobs.session import check, spark_session, stopping
from snapreplay.snapshots.jobs.spark_tasks import ANOTHER_HASH_SEED, for_each
from snapreplay.snapshots.jobs.verdict import AuditRequest, Hashed, Proofs, at_one_moment, recorded, report_of
from snapreplay.snapshots.proof.partition import PartitionReport, audit_partition
from snapreplay.snapshots.proof.proven import Level, RecordedProof
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.snapshots.proof.replay import Segment, SegmentReport, prove, repeated
from snapreplay.snapshots.proof.report import AuditReport, Violation
from snapreplay.snapshots.proof.state import wrong_entries
from snapreplay.state.digest import EMPTY

T = TypeVar("T")


def audit(
    open_reader: OpenReader,
    kafka: Mapping[str, str],
    app_id: str,
    level: Level = Level.INTEGRITY,
    app: str | None = None,
    *,
    proofs: Proofs | None = None,
    master: str | None = None,
) -> AuditReport:
    """Audit as `snapreplay.spark.audit` says.

    Args:
        kafka: the service's client properties, for the witness.
        proofs: only what came after these is checked, and what is proven is recorded there. None: all is checked, and
            nothing is written.

    Raises:
        TopicMissing, Unreachable, JarsUnavailable, UsageError, Trimmed, TaskFailed, SparkFailed: it could not run.
    """
    started = time.monotonic()
    replayed = _replayable(app_id, app) if level is Level.REPLAY else None
    check(master)
    moments = _frozen(open_reader, app_id)  # before Spark is started for nothing
    known = proofs.read(len(moments)) if proofs is not None else None
    with spark_session("snapreplay audit", master) as spark:

        def work(moments: Sequence[Moment]) -> AuditReport:
            with stopping("audit"):
                return _Audit(spark, kafka, app_id, moments, known, app).report(open_reader, level, replayed, started)

        report = at_one_moment(app_id, moments, partial(_frozen, open_reader, app_id), work)
        return report if proofs is None else recorded(report, proofs)


def _frozen(open_reader: OpenReader, app_id: str) -> list[Moment]:
    with open_reader() as reader:
        return freeze(reader, app_id)


class _Audit:
    """An audit of all partitions at one moment."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Mapping[str, str],
        app_id: str,
        moments: Sequence[Moment],
        known: Sequence[RecordedProof] | None,
        app: str | None,
    ) -> None:
        self._spark = spark
        options = dict(kafka)
        self._source = KafkaSource(spark, options.pop("bootstrap.servers"), options)
        self._app_id = app_id
        self._moments = moments
        self._known = known
        self._app_name = app or ""

    def report(self, open_reader: OpenReader, level: Level, app: App[Any] | None, started: float) -> AuditReport:
        """Audit and report; `started` is the monotonic clock's at the beginning."""
        work = partial(_audited, self._app_id, level, self._known)
        parts = for_each(self._spark, self._moments, open_reader, work, PartitionReport)
        hashed = self._witness(parts)
        replayed = self._replay(open_reader, app, parts) if app is not None else None
        asked = AuditRequest(self._app_id, level, self._known, app.version if app is not None else None)
        return report_of(asked, parts, hashed, replayed, time.monotonic() - started)

    def _replay(self, open_reader: OpenReader, app: App[Any], parts: Sequence[PartitionReport]) -> list[SegmentReport]:
        found = [segment for part in parts for segment in part.segments]
        work = partial(_with_logs, prove, self._app_name, app.version)
        reports = for_each(self._spark, found, open_reader, work, SegmentReport)
        differ = [number for number, each in enumerate(reports) if each.fingerprint]
        again = [found[number] for number in differ]
        repeat = partial(_with_logs, repeated, self._app_name, app.version)
        seed = ANOTHER_HASH_SEED
        prints = for_each(self._spark, again, open_reader, repeat, str, hash_seed=seed)
        for number, fingerprint in zip(differ, prints, strict=True):
            reports[number] = reports[number].compared(fingerprint)
        return reports

    def _witness(self, parts: Sequence[PartitionReport]) -> Hashed:
        topic = names.snapshots_topic(self._app_id)
        newest = {part.partition: part.newest for part in parts if part.newest is not None}
        manifests = {partition: each.manifest for partition, each in newest.items()}
        digests = witnessed(self._spark, self._source, topic, len(self._moments), manifests)
        checked = {"snapshots_hashed": len(newest), "entries_hashed": sum(each.count for each in digests.values())}
        wrong = [
            Violation("digest", topic, partition, each.manifest_offset, wrong_entries(each.manifest, found))
            for partition, each in newest.items()
            if (found := digests.get(partition, EMPTY)) != each.manifest.entries_digest
        ]
        return Hashed(checked, wrong)


def _audited(
    app_id: str, level: Level, known: Sequence[RecordedProof] | None, reader: LogReader, moment: Moment
) -> PartitionReport:
    logs = PartitionLogs(reader, app_id, moment.partition)
    earlier = None if known is None else known[moment.partition]
    return audit_partition(app_id, moment, logs, level, earlier)


def _replayable(app_id: str, app: str | None) -> App[Any]:
    """Load the app, or raise UsageError: there is no app, or it is another one."""
    if app is None:
        raise UsageError("a replay runs the app's handlers, so it needs the app")
    return checked_app(app, app_id)


def _with_logs(
    work: Callable[[App[Any], Segment, Logs], T], app: str, version: str, reader: LogReader, segment: Segment
) -> T:
    loaded = _imported(app, version)
    return work(loaded, segment, PartitionLogs(reader, loaded.app_id, segment.partition))


def _imported(app: str, version: str) -> App[Any]:
    """Import the app in a task, on whichever machine it runs."""
    where = f"the executor at {socket.gethostname()}"
    try:
        loaded = load_app(app)
    except UsageError as error:
        raise StopError(
            f"{where} cannot import the app: {error.message}",
            hint="put the app into the executors' environment, or send it with `spark-submit --py-files app.py`, and"
            " name it module:app",
        ) from error
    if loaded.version != version:
        raise StopError(
            f"{where} has imported version {loaded.version} of the app, but the audit was started with {version}",
            hint="put the same code into the executors' environment",
        )
    return loaded

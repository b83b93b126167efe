"""The audit: checks, from the two topics alone, that what was written is whole and right.

    python -m snapreplay.snapshots.jobs.audit --bootstrap-servers HOST:PORT --app-id APP

Exit codes: 0 fine, 1 findings, 2 could not run. The logic is SQL (`audit_checks`); Python decodes
bodies into columns, adds up the digest's halves, and prints.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.errors import RetryableError, SnapreplayError, StopError
from snapreplay.snapshots.jobs import audit_checks as checks
from snapreplay.snapshots.jobs.columns import decode_entries, decode_log, decode_snapshots, judged
from snapreplay.snapshots.jobs.read import SPARK_ERRORS, Frozen, KafkaSource
from snapreplay.snapshots.jobs.report import AuditReport, RecordedDecision, Violation
from snapreplay.snapshots.jobs.session import local_session
from snapreplay.state.digest import MASK, Digest

FINDINGS_MAX = 1000
"""Per check: of a log that is wrong everywhere, the first thousand findings are enough."""
_ATTEMPTS = 3


class SparkFailed(StopError):
    """Spark could not finish; the cause is attached."""


class Trimmed(RetryableError):
    """The owner trimmed the topics while they were read, more than once."""


def audit(
    bootstrap_servers: str, app_id: str, kafka_options: Mapping[str, str] | None = None
) -> AuditReport:
    """Check everything that the two topics of `app_id` hold at this moment.

    A running owner may continue to write and trim. It uses the Spark session of this process, or
    starts one (about 5 s) and stops it again. `kafka_options`: the service's client properties.

    Raises:
        TopicMissing, ClusterUnavailable, JarsUnavailable, UsageError, Trimmed, SparkFailed: it could
            not run.
    """
    started = time.monotonic()
    with _session() as spark:
        source = KafkaSource(spark, bootstrap_servers, kafka_options or {})
        for _ in range(_ATTEMPTS):
            topics = freeze(source, app_id)
            try:
                return _Audit(spark, source, topics, app_id).report(started)
            except SPARK_ERRORS as error:
                if not _trimmed_since(source, topics):
                    raise SparkFailed(f"Spark stopped the audit: {_first_line(error)}") from error
    raise Trimmed(
        f"the topics of {app_id!r} were trimmed {_ATTEMPTS} times while they were read",
        hint="take snapshots less often while auditing",
    )


@dataclass(frozen=True)
class Topics:
    """Both topics between fixed offsets."""

    log: Frozen
    snaps: Frozen


def freeze(source: KafkaSource, app_id: str) -> Topics:
    """Asks for the starts first, then the end of the increments, then the end of the snapshots. So whatever the last
    increment points to is inside, and it does not need what was trimmed before."""
    log, snaps = names.increments_topic(app_id), names.snapshots_topic(app_id)
    log_starts, snaps_starts = source.starts(log), source.starts(snaps)
    frozen_log = source.freeze(log, log_starts, "read_committed")
    # Snapshots are written outside any transaction: a foreign open one must not hide what pointers name.
    return Topics(frozen_log, source.freeze(snaps, snaps_starts, "read_uncommitted"))


def _trimmed_since(source: KafkaSource, topics: Topics) -> bool:
    return any(
        source.starts(frozen.topic) != list(frozen.starts) for frozen in (topics.log, topics.snaps)
    )


@contextmanager
def _session() -> Iterator[SparkSession]:
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    spark = local_session("snapreplay audit")
    try:
        yield spark
    finally:
        spark.stop()


class _Audit:
    """One pass over both topics."""

    def __init__(
        self, spark: SparkSession, source: KafkaSource, topics: Topics, app_id: str
    ) -> None:
        self._spark = spark
        self._source = source
        self._topics = topics
        self._names = {"log": topics.log.topic, "snaps": topics.snaps.topic, "app": app_id}

    def report(self, started: float) -> AuditReport:
        """Run all checks. `started`: the monotonic clock at the beginning."""
        self._make_views()
        counted = self._counted(checks.COUNTS | checks.NOTES)
        counts, notes = (
            {name: counted[name] for name in part} for part in (checks.COUNTS, checks.NOTES)
        )
        findings = self._findings()
        digests = self._wrong_digests(counts)
        return AuditReport(
            app_id=self._names["app"],
            partition_count=len(self._topics.log.starts),
            checked=counts,
            findings=sorted(findings + digests),
            notes=notes,
            seconds=round(time.monotonic() - started, 3),
            decisions=[
                RecordedDecision(*row) for row in self._spark.sql(checks.DECISIONS).collect()
            ],
        )

    def _make_views(self) -> None:
        """Each topic is read once for its columns; the values of changes a second time."""
        topics, starts = self._topics, (self._topics.log.starts, self._topics.snaps.starts)
        rows = [(number, *both) for number, both in enumerate(zip(*starts, strict=True))]
        bounds = self._spark.createDataFrame(
            rows, "partition INT, log_start LONG, snaps_start LONG"
        )
        raw = ("partition", "offset", "value", "headers")
        # Partitions are read one after the other in as many tasks as there are cores. With one task
        # each, 32 small ones took more than twice as long (a consumer and a Python worker per task).
        cores = self._spark.sparkContext.defaultParallelism
        log = self._source.frame(topics.log, raw).coalesce(cores)
        snaps = self._source.frame(topics.snaps, raw).coalesce(cores)
        changes = judged(log, "value").where("kind = 2").select("partition", "offset", "value")
        bounds.createOrReplaceTempView("bounds")
        changes.createOrReplaceTempView("raw_changes")
        _keep(decode_log(log), "log")
        _keep(decode_snapshots(snaps), "snaps")
        for name, query in checks.VIEWS.items():
            view = self._spark.sql(query)
            if name in checks.KEPT:
                _keep(view, name)
            else:
                view.createOrReplaceTempView(name)

    def _counted(self, queries: Mapping[str, str]) -> dict[str, int]:
        columns = ", ".join(f"({query}) AS {name}" for name, query in queries.items())
        (row,) = self._spark.sql(f"SELECT {columns}").collect()
        return {name: int(row[name]) for name in queries}

    def _findings(self) -> list[Violation]:
        whole: DataFrame | None = None
        for name, query in checks.CHECKS.items():
            found = self._spark.sql(query, args=self._names).limit(FINDINGS_MAX)
            named = found.selectExpr(f"'{name}' AS check", "*")
            whole = named if whole is None else whole.unionAll(named)
        return [Violation(*row) for row in whole.collect()] if whole is not None else []

    def _wrong_digests(self, counts: dict[str, int]) -> list[Violation]:
        """Hash every entry of the newest whole snapshot of each partition again."""
        newest = self._spark.sql(checks.NEWEST).collect()
        computed = self._computed(newest)
        counts["snapshots_hashed"] = len(newest)
        counts["entries_hashed"] = sum(digest.count for digest in computed.values())
        return [
            Violation(
                "digest",
                self._topics.snaps.topic,
                row.partition,
                row.offset,
                f"the entries of snapshot {row.snapshot_id} have digest {found},"
                f" but its manifest says {row.entries_digest}",
            )
            for row in newest
            if (found := str(computed.get(row.partition, Digest(0, 0, 0)))) != row.entries_digest
        ]

    def _computed(self, newest: list[Row]) -> dict[int, Digest]:
        refs = [
            (row.partition, chunk.offset, row.snapshot_id, chunk.sequence)
            for row in newest
            for chunk in row.chunks
        ]
        if not refs:
            return {}
        frozen = _only(self._topics.snaps, [(partition, offset) for partition, offset, *_ in refs])
        wanted = self._spark.createDataFrame(
            refs, "partition INT, offset LONG, snapshot_id STRING, sequence LONG"
        )
        records = self._source.frame(frozen, ("partition", "offset", "value"))
        chunks = records.join(wanted.hint("broadcast"), ["partition", "offset"])
        decode_entries(chunks).createOrReplaceTempView("entries")
        return {row.partition: _digest(row) for row in self._spark.sql(checks.DIGESTS).collect()}


def _keep(frame: DataFrame, view: str) -> None:
    """Computes the view now; otherwise every query on it would be planned down to Kafka."""
    frame.localCheckpoint().createOrReplaceTempView(view)


def _first_line(error: BaseException) -> str:
    """The first line of Java's cause, if there is one: Spark's own message is the stack trace."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    return str(error if java is None else java.toString()).splitlines()[0]


def _only(whole: Frozen, refs: list[tuple[int, int]]) -> Frozen:
    """The topic from the first to the last of these records, per partition; nothing of other partitions."""
    starts, ends = list(whole.ends), list(whole.ends)
    for number in {partition for partition, _ in refs}:
        offsets = [offset for partition, offset in refs if partition == number]
        starts[number], ends[number] = min(offsets), max(offsets) + 1
    return Frozen(whole.topic, starts, ends, whole.isolation)


def _digest(row: Row) -> Digest:
    a, b = ((high << 32) + low for low, high in ((row.a_low, row.a_high), (row.b_low, row.b_high)))
    return Digest(row.entries, a & MASK, b & MASK)


def main(arguments: list[str] | None = None) -> int:
    """Run it from a command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="snapreplay audit", description=audit.__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--app-id", required=True)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    given = parser.parse_args(arguments)
    try:
        report = audit(given.bootstrap_servers, given.app_id)
    except SnapreplayError as error:
        sys.stderr.write(f"the audit could not run: {error}\n")
        return 2
    text = msgspec.json.encode(report).decode() if given.output == "json" else as_text(report)
    sys.stdout.write(text + "\n")
    return report.exit_code


def as_text(report: AuditReport) -> str:
    """Return the report for people: what was checked, notes, findings with their place, verdict."""
    lines = [
        f"audit of {report.app_id}, {counted(report.partition_count, 'partition')}, {report.seconds:.1f} s"
    ]
    lines += [f"  checked  {count:>12,} {name}" for name, count in report.checked.items()]
    lines += [f"  note     {count:>12,} {name}" for name, count in report.notes.items() if count]
    lines += [
        f"  {'DECIDED ' if d.by_owner else 'ACCEPTED'} {d.finding}: partition {d.partition} offset {d.offset},"
        f" by {d.by}: {d.reason}"
        f" ({d.decided})"
        for d in report.decisions
    ]
    lines += [
        f"  FINDING  {f.check}: {f.topic}-{f.partition} offset {f.offset}: {f.detail}"
        for f in report.findings
    ]
    return "\n".join([*lines, "findings" if report.findings else "fine"])


if __name__ == "__main__":
    sys.exit(main())

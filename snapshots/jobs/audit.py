"""The audit: checks, from the own topics alone, that what was written is whole and right.

Each partition is proved by one task. Then the newest snapshots are read once more by a witness that shares no client
with it.
"""

from __future__ import annotations

import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from pyspark.sql import SparkSession

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.load import checked_app, load_app
from snapreplay.errors import RetryableError, SnapreplayError, StopError, UsageError
from snapreplay.snapshots.jobs.fixed_logs import LogReader, OpenReader, PartitionLogs, freeze, starts_of
from snapreplay.snapshots.jobs.second_reading import KafkaSource, witnessed
from snapreplay.snapshots.jobs.session import SparkFailed, check, spark_session, stopping
from snapreplay.snapshots.jobs.spark_tasks import ANOTHER_HASH_SEED, TaskFailed, for_each
from snapreplay.snapshots.proof.entries import wrong_entries
from snapreplay.snapshots.proof.level import Level
from snapreplay.snapshots.proof.partition import PartitionReport, audit_partition
from snapreplay.snapshots.proof.proven import Proof, Recorded
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.snapshots.proof.replay import Segment, SegmentReport, prove, repeated
from snapreplay.snapshots.proof.report import AuditedChain, AuditReport, Stretch, Violation
from snapreplay.state.digest import EMPTY

T = TypeVar("T")

_ATTEMPTS = 3


class Trimmed(RetryableError):
    """The owner trimmed the topics while they were read, more than once."""


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
        for _ in range(_ATTEMPTS):
            try:
                with stopping("audit"):
                    audited = _Audit(spark, kafka, app_id, moments, known, app)
                    report = audited.report(open_reader, level, replayed, started)
                return report if proofs is None else recorded(report, proofs)
            except (SparkFailed, TaskFailed):
                before, moments = moments, _frozen(open_reader, app_id)
                if list(map(starts_of, moments)) == list(map(starts_of, before)):
                    raise
    raise Trimmed(
        f"the topics of {app_id!r} were trimmed {_ATTEMPTS} times while they were read",
        hint="take snapshots less often while auditing",
    )


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
        known: Sequence[Recorded] | None,
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
        checked, digests = self._witness(parts)
        findings = [*digests, *(each for part in parts for each in part.findings)]
        notes = _summed(part.notes for part in parts)
        replayed: list[SegmentReport] = []
        if app is not None:
            replayed = self._replay(open_reader, app, parts)
            findings += [each.finding for each in replayed if each.finding is not None]
            checked["batches_replayed"] = sum(each.batches for each in replayed)
            checked["records_replayed"] = sum(each.records for each in replayed)
            proofs = (each.counting_at(Level.REPLAY) for each in self._known or ())
            others = [each for each in proofs if each and each.app_version != app.version]
            notes["proofs_of_another_version"] = len(others)
            notes["batches_replayed_without_digest"] = sum(each.not_proven for each in replayed)
            notes["segments_without_input"] = sum(each.without_input for each in replayed)
        return AuditReport(
            app_id=self._app_id,
            partition_count=len(self._moments),
            checked=_summed(part.checked for part in parts) | checked,
            findings=sorted(set(findings)),
            notes=notes,
            seconds=round(time.monotonic() - started, 3),
            decisions=[each for part in parts for each in part.decisions],
            level=level,
            chains=chains_of(parts, replayed, {each.partition for each in findings}),
            since_last=self._known is not None,
        )

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

    def _witness(self, parts: Sequence[PartitionReport]) -> tuple[dict[str, int], list[Violation]]:
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
        return checked, wrong


def _audited(
    app_id: str, level: Level, known: Sequence[Recorded] | None, reader: LogReader, moment: Moment
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


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


class Proofs(Protocol):
    """The place where the proofs of an app are recorded."""

    def read(self, partition_count: int) -> Sequence[Recorded]:
        """Return what is recorded, by partition.

        Raises:
            NotAuthorized, Unreachable: it is not known what is proven.
        """

    def record(self, proven: Mapping[int, Proof]) -> Mapping[int, Proof]:
        """Record the proofs; return partition → proof, with its time.

        Raises:
            NotAuthorized, Unreachable, StopError: not all of them were recorded.
        """


def recorded(report: AuditReport, proofs: Proofs) -> AuditReport:
    """Return the report, with what became of the record. The verdict stands in any case."""
    proven = {each.partition: each.proven for each in report.chains if each.proven is not None}
    try:
        kept = proofs.record(proven)
    except SnapreplayError as error:
        says = f"{error.message}; {error.hint}" if error.hint else error.message
        return msgspec.structs.replace(report, not_recorded=says)
    chains = [
        msgspec.structs.replace(each, proven=kept[each.partition], recorded=True) if each.partition in kept else each
        for each in report.chains
    ]
    return msgspec.structs.replace(report, chains=chains)


def chains_of(
    parts: Sequence[PartitionReport], replayed: Sequence[SegmentReport], with_findings: Collection[int]
) -> list[AuditedChain]:
    """Return the chains by partition. `replayed`: of the segments of all parts, in order."""
    reports = iter(replayed)
    stretches: dict[int, list[tuple[Segment, SegmentReport]]] = defaultdict(list)
    for part in parts:
        for segment, report in zip(part.segments, reports, strict=False):
            stretches[part.partition].append((segment, report))
    return [_chain(part.chain, stretches[part.partition], found=part.partition in with_findings) for part in parts]


def _chain(chain: AuditedChain, replayed: Sequence[tuple[Segment, SegmentReport]], *, found: bool) -> AuditedChain:
    """Prove as far as the last stretch was replayed: those before it were replayed, or have no input any more."""
    proven = chain.proven
    if replayed and replayed[-1][1].proven is not None:
        proven = replayed[-1][1].proven
    return msgspec.structs.replace(
        chain,
        proven=None if found else proven,
        stretches=tuple(
            Stretch(segment.log_start, segment.end_offset, _outcome(report)) for segment, report in replayed
        ),
    )


def _outcome(report: SegmentReport) -> str:
    if report.finding is not None:
        return "different"
    return "no input" if report.without_input else "same"

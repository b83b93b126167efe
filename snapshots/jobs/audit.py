"""The audit: checks, from the own topics alone, that what was written is whole and right. Without Spark in it.

Each partition is proved on its own: in this process one after the other, on Spark by a task each. Its newest snapshot
is read once more, and every entry is hashed.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.load import checked_app, load_app
from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, StopError, UnknownFormatError, UsageError
from snapreplay.snapshots.jobs.fixed_logs import LogReader, PartitionLogs, freeze, starts_of
from snapreplay.snapshots.log.loading import NullSink
from snapreplay.snapshots.proof.partition import PartitionReport, audit_partition
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.snapshots.proof.replay import Segment, SegmentReport, prove
from snapreplay.snapshots.proof.report import AuditReport, Level, Violation
from snapreplay.snapshots.proof.state import load

T = TypeVar("T")

ATTEMPTS = 3


class Trimmed(RetryableError):
    """The owner trimmed the topics while they were read, more than once.

    Safe: An audit only reads, so it may be run again.
    """


class Audited(msgspec.Struct, frozen=True):
    """The audit of one partition. `wrong`: what a second reading of its newest snapshot has found."""

    report: PartitionReport
    wrong: Violation | None


def audit(reader: LogReader, app_id: str, level: Level, app: App[Any] | None = None) -> AuditReport:
    """Audit all partitions as of now, one after the other. The owners may write and trim meanwhile.

    Args:
        app: is replayed; level REPLAY needs it.

    Raises:
        SnapreplayError: it could not run: a topic is missing, no broker answers.
    """
    started = time.monotonic()

    def work(moments: Sequence[Moment]) -> AuditReport:
        parts, replayed = list[Audited](), list[SegmentReport]()
        for moment in moments:
            parts.append(audited(app_id, level, reader, moment))
            if app is not None:
                logs = PartitionLogs(reader, app_id, moment.partition)
                replayed += [prove(app, each, logs) for each in parts[-1].report.segments]
        return report_of(app_id, level, parts, replayed if app is not None else None, time.monotonic() - started)

    return at_one_moment(app_id, partial(freeze, reader, app_id), work)


def at_one_moment(
    app_id: str, look: Callable[[], list[Moment]], work: Callable[[list[Moment]], AuditReport]
) -> AuditReport:
    """Work on the moments of one `look`, and on those of another one if the topics were trimmed meanwhile.

    Raises:
        Trimmed: they were each time.
        What `look` raises, and `work` if nothing was trimmed.
    """
    moments = look()
    for _ in range(ATTEMPTS):
        try:
            return work(moments)
        except SnapreplayError:
            before, moments = moments, look()
            if list(map(starts_of, moments)) == list(map(starts_of, before)):
                raise
    raise Trimmed(
        f"the topics of {app_id!r} were trimmed {ATTEMPTS} times while they were read",
        hint="take snapshots less often while auditing",
    )


# --------------------------------------------------------------------- one partition, also in a task


def audited(app_id: str, level: Level, reader: LogReader, moment: Moment) -> Audited:
    """Audit one partition."""
    logs = PartitionLogs(reader, app_id, moment.partition)
    report = audit_partition(app_id, moment, logs, level)
    return Audited(report, _read_again(app_id, report, logs))


def _read_again(app_id: str, report: PartitionReport, logs: Logs) -> Violation | None:
    """Read the newest snapshot once more, and hash every entry."""
    newest = report.newest
    if newest is None:
        return None
    try:
        load(logs, newest.manifest, NullSink())
    except (DamagedError, UnknownFormatError) as error:
        topic = names.snapshots_topic(app_id)
        return Violation("digest", topic, report.partition, newest.manifest_offset, error.message)
    return None


def replayable(app_id: str, app: str | None) -> App[Any]:
    """Load the app that is to be replayed, or raise UsageError: there is no app, or it is another one."""
    if app is None:
        raise UsageError("a replay runs the app's handlers, so it needs the app")
    return checked_app(app, app_id)


def with_app(
    work: Callable[[App[Any], Segment, Logs], T], app: str, version: str, reader: LogReader, segment: Segment
) -> T:
    """Import the app in a task, on whichever machine it runs, and work with it. Raises StopError: it cannot be
    imported, or is of another version."""
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
    return work(loaded, segment, PartitionLogs(reader, loaded.app_id, segment.partition))


# --------------------------------------------------------------------- the verdict


def report_of(
    app_id: str, level: Level, audited: Sequence[Audited], replayed: Sequence[SegmentReport] | None, seconds: float
) -> AuditReport:
    """Put the reports together. `replayed`: of the segments of all partitions, in order; None: nothing was replayed."""
    parts = [each.report for each in audited]
    findings = [*(each.wrong for each in audited if each.wrong), *(each for part in parts for each in part.findings)]
    newest = [part.newest.manifest for part in parts if part.newest is not None]
    checked = _summed(part.checked for part in parts)
    checked["snapshots_hashed"] = len(newest)
    checked["entries_hashed"] = sum(manifest.entries_digest.count for manifest in newest)
    notes = _summed(part.notes for part in parts)
    if replayed is not None:
        findings += [each.finding for each in replayed if each.finding is not None]
        checked["batches_replayed"] = sum(each.batches for each in replayed)
        checked["records_replayed"] = sum(each.records for each in replayed)
        notes["batches_replayed_without_digest"] = sum(each.not_proven for each in replayed)
        notes["segments_without_input"] = sum(each.without_input for each in replayed)
    return AuditReport(
        app_id=app_id,
        partition_count=len(parts),
        checked=checked,
        findings=sorted(set(findings)),
        notes=notes,
        seconds=round(seconds, 3),
        decisions=[each for part in parts for each in part.decisions],
        level=level,
    )


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)

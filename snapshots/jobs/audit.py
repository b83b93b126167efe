"""The audit: checks, from the own topics alone, that what was written is whole and right. Without Spark in it.

Each partition is proved on its own: in this process one after the other, on Spark by a task each.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from snapreplay.app.app import App
from snapreplay.app.load import checked_app, load_app
from snapreplay.errors import StopError, UsageError
from snapreplay.snapshots.jobs.fixed_logs import LogReader, PartitionLogs, freeze, untrimmed
from snapreplay.snapshots.proof.partition import PartitionReport, audit_partition
from snapreplay.snapshots.proof.records import Moment
from snapreplay.snapshots.proof.replay import SegmentReport, prove
from snapreplay.snapshots.proof.report import AuditReport, Level


class Audited(msgspec.Struct, frozen=True):
    """The audit of one partition. `replayed`: its segments; None: nothing was to be replayed."""

    report: PartitionReport
    replayed: list[SegmentReport] | None


def audit(reader: LogReader, app_id: str, level: Level, app: App[Any] | None = None) -> AuditReport:
    """Audit all partitions as of now, one after the other. The owners may write and trim meanwhile.

    Args:
        app: is replayed; level REPLAY needs it.

    Raises:
        SnapreplayError: it could not run: a topic is missing, no broker answers.
    """
    started, load = time.monotonic(), None if app is None else lambda: app
    parts = [audited(app_id, level, load, reader, moment) for moment in freeze(reader, app_id)]
    return report_of(app_id, level, parts, time.monotonic() - started)


def audited(
    app_id: str, level: Level, load_app: Callable[[], App[Any]] | None, reader: LogReader, moment: Moment
) -> Audited:
    """Audit one partition, also in a task.

    Args:
        load_app: gives the app to be replayed.

    Raises:
        Trimmed: it was trimmed each time.
    """
    app = load_app() if load_app is not None else None
    logs = PartitionLogs(reader, app_id, moment.partition)

    def once(moment: Moment) -> Audited:
        report = audit_partition(app_id, moment, logs, level)
        replayed = [prove(app, each, logs) for each in report.segments] if app is not None else None
        return Audited(report, replayed)

    return untrimmed(reader, app_id, moment, once)


def replayable(app_id: str, app: str | None) -> App[Any]:
    """Load the app that is to be replayed, or raise UsageError: there is no app, or it is another one."""
    if app is None:
        raise UsageError("a replay runs the app's handlers, so it needs the app")
    return checked_app(app, app_id)


def imported(app: str, version: str) -> App[Any]:
    """Import the app in a task, on any machine. Raises StopError: it cannot be imported, or is of another version."""
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


# --------------------------------------------------------------------- the verdict


def report_of(app_id: str, level: Level, audited: Sequence[Audited], seconds: float) -> AuditReport:
    """Put the reports of all partitions together."""
    parts = [each.report for each in audited]
    findings = [each for part in parts for each in part.findings]
    checked = _summed(part.checked for part in parts)
    notes = _summed(part.notes for part in parts)
    if level is Level.REPLAY:
        replayed = [each for part in audited for each in part.replayed or ()]
        findings += [each.finding for each in replayed if each.finding is not None]
        checked["batches_replayed"] = sum(each.batches for each in replayed)
        checked["records_replayed"] = sum(each.records for each in replayed)
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

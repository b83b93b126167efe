"""The audit in this process, without Spark: one partition after the other. The newest snapshots are read once more by
the same client, where Spark reads them with a connector of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.jobs.fixed_logs import LogReader, PartitionLogs, freeze
from snapreplay.snapshots.jobs.verdict import AuditRequest, Hashed, Proofs, at_one_moment, recorded, report_of, summed
from snapreplay.snapshots.log.loading import Nowhere
from snapreplay.snapshots.proof.partition import PartitionReport, audit_partition
from snapreplay.snapshots.proof.proven import Level
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.snapshots.proof.replay import Segment, SegmentReport, prove
from snapreplay.snapshots.proof.report import AuditReport, Violation
from snapreplay.snapshots.proof.state import load

Repeat = Callable[[Segment], str]
"""Replays a segment once more, in a process with another hash seed; returns the fingerprint of the first difference."""


def audit(
    reader: LogReader,
    app_id: str,
    level: Level,
    app: App[Any] | None = None,
    *,
    repeat: Repeat,
    proofs: Proofs | None = None,
) -> AuditReport:
    """Audit all partitions as of now. The owners may write and trim meanwhile.

    Args:
        app: is replayed; level REPLAY needs it.
        proofs: only what came after these is checked, and what is proven is recorded there. None: all is checked, and
            nothing is written.

    Raises:
        SnapreplayError: it could not run: a topic is missing, no broker answers, it is not known what is proven.
    """
    started = time.monotonic()
    look = partial(freeze, reader, app_id)
    moments = look()
    known = proofs.read(len(moments)) if proofs is not None else None

    def work(moments: Sequence[Moment]) -> AuditReport:
        parts: list[PartitionReport] = []
        hashed: list[Hashed] = []
        replayed: list[SegmentReport] = []
        for moment in moments:
            logs = PartitionLogs(reader, app_id, moment.partition)
            earlier = None if known is None else known[moment.partition]
            part = audit_partition(app_id, moment, logs, level, earlier)
            parts.append(part)
            hashed.append(_hashed(app_id, part, logs))
            if app is not None:
                replayed += [_replayed(app, each, logs, repeat) for each in part.segments]
        asked = AuditRequest(app_id, level, known, app.version if app is not None else None)
        wrong = [each for one in hashed for each in one.wrong]
        all_hashed = Hashed(summed(one.checked for one in hashed), wrong)
        return report_of(asked, parts, all_hashed, replayed if app is not None else None, time.monotonic() - started)

    report = at_one_moment(app_id, moments, look, work)
    return report if proofs is None else recorded(report, proofs)


def _hashed(app_id: str, part: PartitionReport, logs: Logs) -> Hashed:
    """Read the newest snapshot once more, and hash every entry."""
    newest = part.newest
    if newest is None:
        return Hashed({"snapshots_hashed": 0, "entries_hashed": 0}, [])
    checked = {"snapshots_hashed": 1, "entries_hashed": newest.manifest.entries_digest.count}
    try:
        load(logs, newest.manifest, Nowhere())
    except (DamagedError, UnknownFormatError) as error:
        topic = names.snapshots_topic(app_id)
        return Hashed(checked, [Violation("digest", topic, part.partition, newest.manifest_offset, error.message)])
    return Hashed(checked, [])


def _replayed(app: App[Any], segment: Segment, logs: Logs, repeat: Repeat) -> SegmentReport:
    report = prove(app, segment, logs)
    return report.compared(repeat(segment)) if report.fingerprint else report

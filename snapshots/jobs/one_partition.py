"""The audit of one partition in this process, without Spark. What Spark's own connector reads once more is read by the
client of the audit here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.jobs.fixed_logs import LogReader, PartitionLogs, moment_of, partition_count
from snapreplay.snapshots.jobs.verdict import Asked, Hashed, Proofs, at_one_moment, recorded, report_of
from snapreplay.snapshots.log.loading import Nowhere
from snapreplay.snapshots.proof.entries import load
from snapreplay.snapshots.proof.level import Level
from snapreplay.snapshots.proof.partition import PartitionReport, audit_partition
from snapreplay.snapshots.proof.proven import Recorded
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.snapshots.proof.replay import Segment, SegmentReport, prove
from snapreplay.snapshots.proof.report import AuditReport, Violation

Repeat = Callable[[Segment], str]
"""Replays a segment once more, in a process with another hash seed; returns the fingerprint of the first difference."""


class OnePartition:
    """An audit of one partition since the last proof."""

    def __init__(self, reader: LogReader, app_id: str, partition: int, level: Level) -> None:
        self._reader, self._app_id, self._partition, self._level = reader, app_id, partition, level

    def audit(self, proofs: Proofs, app: App[Any] | None, repeat: Repeat) -> AuditReport:
        """Audit what came after the last proof, and record the new one. `app`: is replayed, at level REPLAY.

        Raises:
            SnapreplayError: it could not run: a topic is missing, no broker answers, it is not known what is proven.
        """
        started = time.monotonic()
        known = proofs.read(partition_count(self._reader, self._app_id))[self._partition]

        def look() -> list[Moment]:
            return [moment_of(self._reader, self._app_id, self._partition)]

        def work(moments: Sequence[Moment]) -> AuditReport:
            return self._report(moments[0], known, app, repeat, started)

        return recorded(at_one_moment(self._app_id, look(), look, work), proofs)

    def _report(
        self, moment: Moment, known: Recorded, app: App[Any] | None, repeat: Repeat, started: float
    ) -> AuditReport:
        logs = PartitionLogs(self._reader, self._app_id, self._partition)
        part = audit_partition(self._app_id, moment, logs, self._level, known)
        hashed = _hashed(self._app_id, part, logs)
        replayed = [_replayed(app, each, logs, repeat) for each in part.segments] if app is not None else None
        asked = Asked(self._app_id, self._level, [known], app.version if app is not None else None)
        return report_of(asked, [part], hashed, replayed, time.monotonic() - started)


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

"""The audit: checks, from the own topics alone, that what was written is whole and right. Without Spark in it.

Each partition is proved on its own: in this process one after the other, on Spark by a task each. Its newest snapshot
is read once more, and every entry is hashed.
"""

from __future__ import annotations

import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.load import checked_app, load_app
from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, StopError, UnknownFormatError, UsageError
from snapreplay.snapshots.jobs.fixed_logs import LogReader, PartitionLogs, freeze, starts_of
from snapreplay.snapshots.log.loading import NullSink
from snapreplay.snapshots.proof.partition import PartitionReport, audit_partition
from snapreplay.snapshots.proof.proven import Level, Proof, RecordedProof
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.snapshots.proof.replay import Segment, SegmentReport, prove
from snapreplay.snapshots.proof.report import AuditedChain, AuditReport, Stretch, Violation
from snapreplay.snapshots.proof.state import load

T = TypeVar("T")

ATTEMPTS = 3

Repeat = Callable[[Segment], str]
"""Replays a segment once more, in a process with another hash seed; returns the fingerprint of the first difference."""


class Trimmed(RetryableError):
    """The owner trimmed the topics while they were read, more than once.

    Safe: An audit only reads, so it may be run again. Nothing was recorded as proven.
    """


class AuditRequest(NamedTuple):
    """The question. `known`: the proofs so far of the partitions that are audited; None: they do not count.
    `app_version`: of the code that is replayed; None: none is."""

    app_id: str
    level: Level
    known: Sequence[RecordedProof] | None
    app_version: str | None = None


class Audited(msgspec.Struct, frozen=True):
    """The audit of one partition. `wrong`: what a second reading of its newest snapshot has found."""

    report: PartitionReport
    wrong: Violation | None


class Proofs(Protocol):
    """The place where the proofs of an app are recorded."""

    def read(self, partition_count: int) -> Sequence[RecordedProof]:
        """Return what is recorded, by partition.

        Raises:
            NotAuthorized, Unreachable: it is not known what is proven.
        """

    def record(self, proven: Mapping[int, Proof]) -> Mapping[int, Proof]:
        """Record the proofs; return partition → proof, with its time.

        Raises:
            NotAuthorized, Unreachable, StopError: not all of them were recorded.
        """


def audit(
    reader: LogReader,
    app_id: str,
    level: Level,
    app: App[Any] | None = None,
    *,
    repeat: Repeat,
    proofs: Proofs | None = None,
) -> AuditReport:
    """Audit all partitions as of now, one after the other. The owners may write and trim meanwhile.

    Args:
        app: is replayed; level REPLAY needs it.
        proofs: only what came after these is checked, and what is proven is recorded there. None: all is checked, and
            nothing is written.

    Raises:
        SnapreplayError: it could not run: a topic is missing, no broker answers, it is not known what is proven.
    """

    def work(moments: Sequence[Moment], known: Sequence[RecordedProof] | None, started: float) -> AuditReport:
        parts, replayed = list[Audited](), list[SegmentReport]()
        for moment in moments:
            parts.append(audited(app_id, level, known, reader, moment))
            if app is not None:
                logs = PartitionLogs(reader, app_id, moment.partition)
                replayed += [_replayed(app, each, logs, repeat) for each in parts[-1].report.segments]
        asked = AuditRequest(app_id, level, known, app.version if app is not None else None)
        return report_of(asked, parts, replayed if app is not None else None, time.monotonic() - started)

    return concluded(app_id, partial(freeze, reader, app_id), work, proofs)


def _replayed(app: App[Any], segment: Segment, logs: Logs, repeat: Repeat) -> SegmentReport:
    report = prove(app, segment, logs)
    return report.compared(repeat(segment)) if report.fingerprint else report


def concluded(
    app_id: str,
    look: Callable[[], list[Moment]],
    work: Callable[[list[Moment], Sequence[RecordedProof] | None, float], AuditReport],
    proofs: Proofs | None,
) -> AuditReport:
    """Return what `work` reports of the moments that `look` gives, the proofs so far and the monotonic clock at the
    beginning; record what it proves. Raises as `audit`."""
    started = time.monotonic()
    moments = look()
    known = proofs.read(len(moments)) if proofs is not None else None
    report = _at_one_moment(app_id, moments, look, lambda moments: work(moments, known, started))
    return report if proofs is None else _recorded(report, proofs)


def _at_one_moment(
    app_id: str, moments: list[Moment], look: Callable[[], list[Moment]], work: Callable[[list[Moment]], AuditReport]
) -> AuditReport:
    """Work on these moments, and on those of another `look` if the topics were trimmed meanwhile.

    Raises:
        Trimmed: they were each time.
        What `look` raises, and `work` if nothing was trimmed.
    """
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


def _recorded(report: AuditReport, proofs: Proofs) -> AuditReport:
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


# --------------------------------------------------------------------- one partition, also in a task


def audited(
    app_id: str, level: Level, known: Sequence[RecordedProof] | None, reader: LogReader, moment: Moment
) -> Audited:
    """Audit one partition."""
    logs = PartitionLogs(reader, app_id, moment.partition)
    report = audit_partition(app_id, moment, logs, level, None if known is None else known[moment.partition])
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
    asked: AuditRequest, audited: Sequence[Audited], replayed: Sequence[SegmentReport] | None, seconds: float
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
        proofs = (each.counting_at(Level.REPLAY) for each in asked.known or ())
        others = [each for each in proofs if each and each.app_version != asked.app_version]
        notes["proofs_of_another_version"] = len(others)
        notes["batches_replayed_without_digest"] = sum(each.not_proven for each in replayed)
        notes["segments_without_input"] = sum(each.without_input for each in replayed)
    return AuditReport(
        app_id=asked.app_id,
        partition_count=len(parts),
        checked=checked,
        findings=sorted(set(findings)),
        notes=notes,
        seconds=round(seconds, 3),
        decisions=[each for part in parts for each in part.decisions],
        level=asked.level,
        chains=_chains_of(parts, replayed or (), {each.partition for each in findings}),
        since_last=asked.known is not None,
    )


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _chains_of(
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

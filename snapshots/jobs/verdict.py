"""The verdict of an audit: the reports of its partitions as one, and the record of what is proven. Without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from snapreplay.errors import RetryableError, SnapreplayError
from snapreplay.snapshots.jobs.fixed_logs import starts_of
from snapreplay.snapshots.proof.partition import PartitionReport
from snapreplay.snapshots.proof.proven import Level, Proof, RecordedProof
from snapreplay.snapshots.proof.records import Moment
from snapreplay.snapshots.proof.replay import Segment, SegmentReport
from snapreplay.snapshots.proof.report import AuditedChain, AuditReport, Stretch, Violation

ATTEMPTS = 3


class Trimmed(RetryableError):
    """The owner trimmed the topics while they were read, more than once.

    Safe: An audit only reads, so it may be run again. Nothing was recorded as proven.
    """


def at_one_moment(
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


class AuditRequest(NamedTuple):
    """The question. `known`: the proofs so far of the partitions that are audited; None: they do not count.
    `app_version`: of the code that is replayed; None: none is."""

    app_id: str
    level: Level
    known: Sequence[RecordedProof] | None
    app_version: str | None = None


class Hashed(NamedTuple):
    """The newest snapshots, read once more and hashed: how many, and those that are wrong."""

    checked: dict[str, int]
    wrong: Sequence[Violation]


def report_of(
    asked: AuditRequest,
    parts: Sequence[PartitionReport],
    hashed: Hashed,
    replayed: Sequence[SegmentReport] | None,
    seconds: float,
) -> AuditReport:
    """Put the reports together. `replayed`: of the segments of all parts, in order; None: nothing was replayed."""
    findings = [*hashed.wrong, *(each for part in parts for each in part.findings)]
    checked, notes = summed(part.checked for part in parts) | hashed.checked, summed(part.notes for part in parts)
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
        chains=chains_of(parts, replayed or (), {each.partition for each in findings}),
        since_last=asked.known is not None,
    )


def summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


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

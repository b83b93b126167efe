"""The proofs that an audit has made of each partition, and their record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from snapreplay.errors import SnapreplayError
from snapreplay.snapshots.proof.partition import PartitionReport
from snapreplay.snapshots.proof.proven import Proof, Recorded
from snapreplay.snapshots.proof.replay import Segment, SegmentReport
from snapreplay.snapshots.proof.report import AuditReport, Chain, Stretch


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
        msgspec.structs.replace(each, proven=kept[each.partition], recorded=True)
        if each.partition in kept
        else each
        for each in report.chains
    ]
    return msgspec.structs.replace(report, chains=chains)


def chains_of(
    parts: Sequence[PartitionReport],
    replayed: Sequence[SegmentReport],
    with_findings: Collection[int],
) -> list[Chain]:
    """Return the chains by partition. `replayed`: of the segments of all parts, in order."""
    reports = iter(replayed)
    stretches: dict[int, list[tuple[Segment, SegmentReport]]] = defaultdict(list)
    for part in parts:
        for segment, report in zip(part.segments, reports, strict=False):
            stretches[part.partition].append((segment, report))
    return [
        _chain(part.chain, stretches[part.partition], found=part.partition in with_findings)
        for part in parts
    ]


def _chain(
    chain: Chain, replayed: Sequence[tuple[Segment, SegmentReport]], *, found: bool
) -> Chain:
    """Prove as far as the last stretch was replayed: those before it were replayed, or have no input any more."""
    proven = chain.proven
    if replayed and replayed[-1][1].proven is not None:
        proven = replayed[-1][1].proven
    return msgspec.structs.replace(
        chain,
        proven=None if found else proven,
        stretches=tuple(
            Stretch(segment.log_start, segment.end_offset, _outcome(report))
            for segment, report in replayed
        ),
    )


def _outcome(report: SegmentReport) -> str:
    if report.finding is not None:
        return "different"
    return "no input" if report.without_input else "same"

"""The audit of one partition. Pure but for what `Logs` does."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from snapreplay.snapshots.format.records import Increment, Manifest
from snapreplay.snapshots.plan import LogStarts
from snapreplay.snapshots.proof.chain import Found, Orphans
from snapreplay.snapshots.proof.entries import is_there
from snapreplay.snapshots.proof.increments import Folding, IncrementsProof
from snapreplay.snapshots.proof.level import Level
from snapreplay.snapshots.proof.proven import NOTHING, Beginning, Proof, RecordedProof, beginning, broken_promises
from snapreplay.snapshots.proof.records import Logs, Moment, judge
from snapreplay.snapshots.proof.replay import Segment, segments
from snapreplay.snapshots.proof.report import (
    AuditedChain,
    AuditedPartition,
    Findings,
    RecordedDecision,
    SnapshotPlace,
    Violation,
)
from snapreplay.snapshots.proof.snapshots import SnapshotsProof, is_trimmed

SNAPSHOTS_MAX = 200
"""Of a partition, in its chain: the newest ones."""


class Newest(msgspec.Struct, frozen=True):
    """The newest snapshot that is pointed to; every chunk of it is what its manifest says."""

    manifest_offset: int
    manifest: Manifest


class PartitionReport(msgspec.Struct, frozen=True):
    """The report on one partition; see `AuditReport`.

    Attributes:
        newest: None where it is not whole, or where there is none.
        segments: to be replayed; empty below level REPLAY.
        chain: its `proven` counts where nothing is found, and no more than level CHANGES.
    """

    partition: int
    checked: dict[str, int]
    notes: dict[str, int]
    findings: list[Violation]
    decisions: list[RecordedDecision]
    newest: Newest | None
    segments: list[Segment]
    chain: AuditedChain


def audit_partition(
    app_id: str, whole: Moment, logs: Logs, level: Level, recorded: RecordedProof | None = None
) -> PartitionReport:
    """Read both logs, and the increments once more where some of them lead nowhere.

    `recorded`: only what came after the last proof is audited. None: all of it.
    """
    begun = Beginning(whole) if recorded is None else beginning(whole, logs, level, recorded)
    moment, kept = begun.moment, LogStarts(whole.log_start, whole.snapshots_start)
    place = AuditedPartition(app_id, moment.partition, moment.log_start, moment.snapshots_start, kept)
    findings = Findings(moment.partition)
    hashes = level is not Level.INTEGRITY
    snapshots = SnapshotsProof(place, findings)
    for records in logs.snapshots(moment.snapshots_start, moment.snapshots_end):
        for record in records:
            snapshots.add(judge(record, logs.seals, opens_chunks=hashes))
    whole_ones = {at: each for at, each in snapshots.manifests.items() if snapshots.is_whole(each)}
    lost = Orphans()
    while True:
        found = Findings(moment.partition)
        folding = Folding(place, found, whole_ones, logs) if hashes else None
        proof = IncrementsProof(place, found, lost, folding, logs.seals)
        proof.of(logs, moment.log_end)
        if lost or not proof.orphans:
            break
        lost = proof.orphans
    _look_up(proof, moment, logs, [each.offset for each in (recorded or NOTHING).proofs])
    snapshots.compare(proof)
    findings.found += found.found
    for offset, says in broken_promises(recorded or NOTHING, proof.batches, moment.log_start):
        findings.add("proof", place.increments, offset, says)
    replayed = segments(moment, proof.last, proof.retired) if level is Level.REPLAY and proof.last else []
    proven = folding.proven if folding is not None else proof.last
    chain = msgspec.structs.replace(
        _chain(whole, begun, proof),
        earlier=recorded.proofs if recorded is not None else (),
        proven=None if proven is None else Proof.of(min(level, Level.CHANGES, key=list(Level).index), proven),
    )
    return _report(place, findings, proof, snapshots, folding, replayed, chain)


def _chain(whole: Moment, begun: Beginning, proof: IncrementsProof) -> AuditedChain:
    first, last = proof.first, proof.last
    snapshots = sorted(proof.pointed, key=lambda pointer: pointer.increment_offset)
    return AuditedChain(
        whole.partition,
        whole.log_start,
        whole.log_end,
        begun.moment.log_start,
        first.increment.batch if first is not None else None,
        last.increment.batch if last is not None else None,
        last.offset if last is not None else None,
        tuple(proof.claims),
        proof.counts["claims"],
        tuple(
            SnapshotPlace(
                each.snapshot_id,
                each.batch,
                each.increment_offset,
                each.first_chunk_offset,
                each.manifest_offset,
                is_there(each, whole),
            )
            for each in snapshots[-SNAPSHOTS_MAX:]
        ),
        audited_all_because=begun.why,
    )


def _look_up(proof: IncrementsProof, moment: Moment, logs: Logs, offsets: Iterable[int]) -> None:
    """Look up the batches at `offsets`, and those of pointers to what was written long before them."""
    pointed = {each.increment_offset for each in proof.pointed}
    for offset in sorted({*offsets, *pointed} - proof.batches.keys()):
        if not moment.log_start <= offset < moment.log_end:
            continue
        for records in logs.increments(offset, offset + 1):
            entry = judge(records[0], logs.seals).entry
            if isinstance(entry, Increment) and (batch := proof.batch_of(Found(offset, entry))):
                proof.batches[offset] = batch


def _report(
    place: AuditedPartition,
    findings: Findings,
    proof: IncrementsProof,
    snapshots: SnapshotsProof,
    folding: Folding | None,
    replayed: list[Segment],
    chain: AuditedChain,
) -> PartitionReport:
    pointed = proof.pointed.values()
    offsets = {each.pointer.manifest_offset for each in pointed}
    checked = {
        **proof.counts,
        "pointers": len(proof.pointed),
        "manifests": len(snapshots.manifests),
        "chunks": snapshots.chunk_count,
    }
    notes = {
        "foreign_records": proof.foreign_records + snapshots.foreign_records,
        "orphaned_increments": proof.orphan_count,
        "trimmed_pointers": sum(is_trimmed(each, place) for each in pointed),
        "unpointed_manifests": sum(offset not in offsets for offset in snapshots.manifests),
        "unlisted_chunks": snapshots.unlisted_chunks(proof),
    }
    if folding is not None:
        checked["batches_proven"] = folding.batches_proven
        checked["changes_folded"] = folding.changes_folded
        notes["batches_not_proven"] = proof.counts["increments"] - folding.batches_proven
    return PartitionReport(
        place.partition,
        checked,
        notes,
        sorted(findings.found),
        proof.decisions,
        _newest(proof, snapshots),
        replayed,
        chain,
    )


def _newest(proof: IncrementsProof, snapshots: SnapshotsProof) -> Newest | None:
    for each in proof.pointed.values():
        offset = each.pointer.manifest_offset
        manifest = snapshots.manifests.get(offset)
        if each.is_newest and manifest is not None and snapshots.is_whole(manifest):
            return Newest(offset, manifest)
    return None

"""The audit of one partition: its increments, and its snapshots, of which each that is pointed to must be there, whole,
and of the batch that it says. Pure but for what `Logs` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

import msgspec

from snapreplay.snapshots.format.chunks import sums_of
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import Chunk, ChunkRef, Increment, Manifest
from snapreplay.snapshots.plan import LogStarts, trimmed
from snapreplay.snapshots.proof.chain import Found, Orphans
from snapreplay.snapshots.proof.increments import Folding, IncrementsProof, Pointed
from snapreplay.snapshots.proof.records import Condition, Judged, Logs, Moment, judge
from snapreplay.snapshots.proof.replay import Segment, segments
from snapreplay.snapshots.proof.report import AuditedPartition, Findings, Level, RecordedDecision, Violation
from snapreplay.state.digest import EMPTY, Digest, digest_of, digest_of_stores


class PartitionReport(msgspec.Struct, frozen=True):
    """The report on one partition; see `AuditReport`. `segments`: to be replayed; empty below level REPLAY."""

    partition: int
    checked: dict[str, int]
    notes: dict[str, int]
    findings: list[Violation]
    decisions: list[RecordedDecision]
    segments: list[Segment]


def audit_partition(app_id: str, moment: Moment, logs: Logs, level: Level) -> PartitionReport:
    """Read both logs, and the increments once more where some of them lead nowhere."""
    place = AuditedPartition(app_id, moment.partition, moment.log_start, moment.snapshots_start)
    findings = Findings(moment.partition)
    snapshots = SnapshotsProof(place, findings)
    for records in logs.snapshots(moment.snapshots_start, moment.snapshots_end):
        for record in records:
            snapshots.add(judge(record))
    whole_ones = {at: each for at, each in snapshots.manifests.items() if snapshots.is_whole(each)}
    lost = Orphans()
    while True:
        found = Findings(moment.partition)
        folding = Folding(place, found, whole_ones, logs) if level is not Level.INTEGRITY else None
        proof = IncrementsProof(place, found, lost, folding)
        proof.of(logs, moment.log_end)
        if lost or not proof.orphans:
            break
        lost = proof.orphans
    _look_up(proof, moment, logs)
    snapshots.compare(proof)
    findings.found += found.found
    replayed = segments(moment, proof.last, proof.retired) if level is Level.REPLAY and proof.last else []
    return _report(place, findings, proof, snapshots, folding, replayed)


def _look_up(proof: IncrementsProof, moment: Moment, logs: Logs) -> None:
    """Look up the batches of pointers to what was written long before them."""
    for offset in sorted({each.increment_offset for each in proof.pointed} - proof.batches.keys()):
        if not moment.log_start <= offset < moment.log_end:
            continue
        for records in logs.increments(offset, offset + 1):
            entry = judge(records[0]).entry
            if isinstance(entry, Increment) and (batch := proof.batch_of(Found(offset, entry))):
                proof.batches[offset] = batch


def _report(
    place: AuditedPartition,
    findings: Findings,
    proof: IncrementsProof,
    snapshots: SnapshotsProof,
    folding: Folding | None,
    replayed: list[Segment],
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
    return PartitionReport(place.partition, checked, notes, sorted(findings.found), proof.decisions, replayed)


class _Measured(NamedTuple):
    """A record of the topic that is no manifest. `digest`: of a chunk's entries."""

    is_chunk: bool
    is_whole: bool
    size_bytes: int
    crc32: int
    snapshot_id: str = ""
    sequence: int = -1
    digest: Digest | None = None


class SnapshotsProof:
    """Give it each record in order; compare with the increments then."""

    def __init__(self, place: AuditedPartition, findings: Findings) -> None:
        self.manifests: dict[int, Manifest] = {}
        """By offset, those that can be read."""
        self.foreign_records = 0
        self._place = place
        self._findings = findings
        self._measured: dict[int, _Measured] = {}

    def add(self, record: Judged) -> None:
        """Judge the next record of the topic. Every entry of a chunk is hashed."""
        if record.condition is Condition.FOREIGN:
            self.foreign_records += 1
        self._findings.of_condition(self._place.snapshots, record)
        if isinstance(record.entry, Manifest):
            self.manifests[record.offset] = record.entry
            return
        chunk = record.entry if isinstance(record.entry, Chunk) else None
        total = EMPTY
        for part in chunk.slices if chunk is not None else ():
            found = digest_of(part.entries.items())
            total = total.plus(found)
            if sums_of(part) != found:
                says = f"the sums of the slice for shard {part.index} are not those of its entries"
                self._findings.add("digest", self._place.snapshots, record.offset, says)
        self._measured[record.offset] = _Measured(
            record.kind == RecordKind.CHUNK,
            record.condition is Condition.OK,
            len(record.value),
            crc32(record.value),
            chunk.snapshot_id if chunk is not None else "",
            chunk.sequence if chunk is not None else -1,
            total.in_store(chunk.store) if chunk is not None else None,
        )

    @property
    def chunk_count(self) -> int:
        return sum(each.is_chunk and each.is_whole for each in self._measured.values())

    def compare(self, log: IncrementsProof) -> None:
        """Compare every pointer of the increments with what it points to."""
        for pointed in log.pointed.values():
            manifest = self.manifests.get(pointed.pointer.manifest_offset)
            for check, offset, says in self._wrong(pointed, manifest, log):
                self._findings.add(check, self._place.increments, offset, says)
        for offset in {pointer.manifest_offset for pointer in log.pointed} & self.manifests.keys():
            for check, at, says in self._wrong_content(offset, self.manifests[offset]):
                self._findings.add(check, self._place.snapshots, at, says)

    def _hashed(self, manifest: Manifest) -> Digest | None:
        """Return what the entries of all its chunks add up to; None when one of them is missing."""
        total = EMPTY
        for ref in manifest.chunks:
            found = self._measured.get(ref.offset)
            if found is None or found.digest is None or not found.is_whole or not _is_as_listed(found, ref):
                return None
            total = total.plus(found.digest)
        return total

    def is_whole(self, manifest: Manifest) -> bool:
        """Say whether every chunk is there and is what the manifest says."""
        found = [(self._measured.get(ref.offset), ref) for ref in manifest.chunks]
        return all(
            m is not None and m.is_whole and _is_as_listed(m, ref) and _is_of(m, manifest, ref) for m, ref in found
        )

    def unlisted_chunks(self, log: IncrementsProof) -> int:
        """Count the chunks of no snapshot that is pointed to."""
        pointed = {each.manifest_offset for each in log.pointed}
        listed = {
            ref.offset for offset, manifest in self.manifests.items() if offset in pointed for ref in manifest.chunks
        }
        return sum(m.is_chunk and m.is_whole and o not in listed for o, m in self._measured.items())

    def _wrong(
        self, pointed: Pointed, manifest: Manifest | None, log: IncrementsProof
    ) -> Iterator[tuple[str, int, str]]:
        place, pointer, seen_at = self._place, pointed.pointer, pointed.seen_at
        if pointer.manifest_offset >= place.snapshots_start:
            at = f"{pointer.manifest_offset} of {place.snapshots}"
            for wrong in _wrong_pointer(pointed, manifest):
                says = f"points to snapshot {pointer.snapshot_id} at offset {at}, {wrong}"
                yield "pointers", seen_at, says
        if pointer.increment_offset >= place.log_start:
            for says in _wrong_batch(pointed, log):
                yield "pointers", seen_at, says
        if pointed.is_newest and is_trimmed(pointed, place):
            yield (
                "retention",
                seen_at,
                f"the newest snapshot, {pointer.snapshot_id}, needs {place.snapshots} from offset"
                f" {pointer.first_chunk_offset} (starts at {place.snapshots_start}) and {place.increments} after"
                f" {pointer.increment_offset} (starts at {place.log_start})",
            )

    def _wrong_content(self, manifest_offset: int, manifest: Manifest) -> Iterator[tuple[str, int, str]]:
        counted, entries = manifest.entry_count, manifest.entries_digest
        name = f"snapshot {manifest.snapshot_id}"
        if counted != entries.count or manifest.digest != entries:
            says = f"{name} lists {counted} entries, entries digest {entries}, digest {manifest.digest}"
            yield "manifests", manifest_offset, says
        stores = manifest.store_digests
        if stores and digest_of_stores(stores) != entries:
            yield "manifests", manifest_offset, f"{name}: the digests of its stores do not make {entries}"
        for place, ref in enumerate(manifest.chunks):
            if ref.sequence != place:
                yield "manifests", manifest_offset, f"{name} lists chunk {ref.sequence} in place {place}"
            found = self._measured.get(ref.offset)
            if ref.offset >= self._place.snapshots_start and (found is None or not _is_as_listed(found, ref)):
                says = f"chunk {ref.sequence} of {name} (manifest at {manifest_offset}) {_instead(found, ref)}"
                yield "chunks", ref.offset, says
            elif found is not None and found.is_whole and not _is_of(found, manifest, ref):
                says = f"is chunk {found.sequence} of snapshot {found.snapshot_id}"
                yield "chunks", ref.offset, f"chunk {ref.sequence} of {name} (manifest at {manifest_offset}) {says}"
        found_entries = self._hashed(manifest)
        if found_entries not in {None, entries}:
            says = f"the entries of {name} have digest {found_entries}, but its manifest says {entries}"
            yield "digest", manifest_offset, says


def is_trimmed(pointed: Pointed, place: AuditedPartition) -> bool:
    """Say whether the logs no longer hold all that a restore from this snapshot needs."""
    return trimmed(pointed.pointer, LogStarts(place.log_start, place.snapshots_start)) is not None


def _wrong_pointer(pointed: Pointed, manifest: Manifest | None) -> Iterator[str]:
    pointer = pointed.pointer
    if manifest is None:
        yield "where there is no manifest"
    elif manifest.snapshot_id != pointer.snapshot_id:
        yield f"but the manifest there is of {manifest.snapshot_id}"
    else:
        first = min((ref.offset for ref in manifest.chunks), default=pointer.manifest_offset)
        expected = (manifest.batch, manifest.increment_offset, manifest.digest, first)
        claimed = (pointer.batch, pointer.increment_offset, pointer.digest, pointer.first_chunk_offset)
        if expected != claimed:
            yield "but its manifest has another batch, increment, digest or first chunk"


def _wrong_batch(pointed: Pointed, log: IncrementsProof) -> Iterator[str]:
    """Tell of a snapshot of another batch than the log has; one that a decision wrote is of no batch of the log: it
    stands at its claim."""
    pointer = pointed.pointer
    found = log.batches.get(pointer.increment_offset)
    if found == (pointer.batch, pointer.digest) or pointer.increment_offset in log.begun_at:
        return
    there = "where there is no increment"
    if found is not None:
        there = f"which is batch {found[0]} with digest {found[1]}"
    yield f"points to a snapshot of batch {pointer.batch} at increment {pointer.increment_offset}, {there}"


def _is_as_listed(found: _Measured, ref: ChunkRef) -> bool:
    return found.is_chunk and (found.size_bytes, found.crc32) == (ref.size_bytes, ref.crc32)


def _is_of(found: _Measured, manifest: Manifest, ref: ChunkRef) -> bool:
    """Say whether the chunk itself says that it is this one of this snapshot: a restore refuses another."""
    return (found.snapshot_id, found.sequence) == (manifest.snapshot_id, ref.sequence)


def _instead(found: _Measured | None, ref: ChunkRef) -> str:
    if found is None:
        return "is missing"
    if not found.is_chunk:
        return "is another kind of record"
    return (
        f"has {found.size_bytes} bytes, crc32 {found.crc32:08x}, but its manifest says {ref.size_bytes},"
        f" {ref.crc32:08x}"
    )

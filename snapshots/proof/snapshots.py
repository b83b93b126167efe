"""The snapshots topic of one partition: what is pointed to is there, whole, and of the batch that it says. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import Chunk, ChunkRef, Manifest
from snapreplay.snapshots.format.seal import sha256_of
from snapreplay.snapshots.plan import trimmed
from snapreplay.snapshots.proof.entries import wrong_entries
from snapreplay.snapshots.proof.increments import IncrementsProof, Pointed
from snapreplay.snapshots.proof.records import Condition, Judged
from snapreplay.snapshots.proof.report import AuditedPartition, Findings
from snapreplay.state.digest import EMPTY, Digest, digest_of, digest_of_stores


class _Measured(NamedTuple):
    """A record of the topic that is no manifest. `digest`: of a chunk's entries, if they were hashed."""

    is_chunk: bool
    is_whole: bool
    size_bytes: int
    crc32: int
    snapshot_id: str = ""
    digest: Digest | None = None
    sha256: bytes = b""


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
        """Judge the next record of the topic. A chunk is hashed where it was decoded."""
        if record.condition is Condition.FOREIGN:
            self.foreign_records += 1
        self._findings.of_condition(self._place.snapshots, record)
        if isinstance(record.entry, Manifest):
            self.manifests[record.offset] = record.entry
            return
        chunk = record.entry if isinstance(record.entry, Chunk) else None
        self._measured[record.offset] = _Measured(
            record.kind == RecordKind.CHUNK,
            record.condition is Condition.OK,
            len(record.value),
            crc32(record.value),
            chunk.snapshot_id if chunk is not None else "",
            _hashed(chunk) if chunk is not None else None,
            sha256_of([record.value]),
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
        """Return what the entries of all its chunks add up to; None when one of them is missing or was not hashed."""
        total = EMPTY
        for ref in manifest.chunks:
            found = self._measured.get(ref.offset)
            if found is None or found.digest is None or not found.is_whole or not _is_as_listed(found, ref):
                return None
            if found.snapshot_id == manifest.snapshot_id:
                total = total.plus(found.digest)
        return total

    def is_whole(self, manifest: Manifest) -> bool:
        """Say whether every chunk is there and is what the manifest says."""
        found = [(self._measured.get(ref.offset), ref) for ref in manifest.chunks]
        return all(m is not None and m.is_whole and _is_as_listed(m, ref) for m, ref in found)

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
                f" {pointer.first_chunk_offset} (starts at {place.kept.snapshots_offset}) and {place.increments} after"
                f" {pointer.increment_offset} (starts at {place.kept.increments_offset})",
            )

    def _wrong_content(self, manifest_offset: int, manifest: Manifest) -> Iterator[tuple[str, int, str]]:
        counted, entries = manifest.entry_count, manifest.entries_digest
        name = f"snapshot {manifest.snapshot_id}"
        if counted != entries.count or (manifest.digest is not None and manifest.digest != entries):
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
        if (found_entries := self._hashed(manifest)) not in {None, entries}:
            yield "digest", manifest_offset, wrong_entries(manifest, found_entries or EMPTY)


def is_trimmed(pointed: Pointed, place: AuditedPartition) -> bool:
    """Say whether the logs no longer hold all that a restore from this snapshot needs."""
    return trimmed(pointed.pointer, place.kept) is not None


def _wrong_pointer(pointed: Pointed, manifest: Manifest | None) -> Iterator[str]:
    pointer = pointed.pointer
    if manifest is None:
        yield "where there is no manifest"
    elif manifest.snapshot_id != pointer.snapshot_id:
        yield f"but the manifest there is of {manifest.snapshot_id}"
    else:
        first = min((ref.offset for ref in manifest.chunks), default=pointer.manifest_offset)
        told = (manifest.batch, manifest.increment_offset, manifest.digest, first)
        said = (pointer.batch, pointer.increment_offset, pointer.digest, pointer.first_chunk_offset)
        if told != said:
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
        there = f"which is batch {found[0]} with digest {found[1] or 'none'}"
    yield f"points to a snapshot of batch {pointer.batch} at increment {pointer.increment_offset}, {there}"


def _is_as_listed(found: _Measured, ref: ChunkRef) -> bool:
    known = (found.size_bytes, found.crc32, found.sha256 if ref.sha256 else b"")
    return found.is_chunk and known == (ref.size_bytes, ref.crc32, ref.sha256)


def _instead(found: _Measured | None, ref: ChunkRef) -> str:
    if found is None:
        return "is missing"
    if not found.is_chunk:
        return "is another kind of record"
    return (
        f"has {found.size_bytes} bytes, crc32 {found.crc32:08x}, but its manifest says {ref.size_bytes},"
        f" {ref.crc32:08x}"
    )


def _hashed(chunk: Chunk) -> Digest:
    total = EMPTY
    for part in chunk.slices:
        total = total.plus(digest_of(part.entries.items()))
    return total.in_store(chunk.store)

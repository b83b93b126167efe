"""T-QuanLiang: every chunk summed up once, every pointed snapshot judged by its chunks' sums.

Of a chunk only size, checksum and sums are kept: some hundred bytes for up to 900,000.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.checker import wire
from tests.checker.reading import Bounds, Logs
from tests.checker.state import Stored, said_by_store
from tests.checker.verdict import Check, Verdict
from tests.checker.wire import Digest, Sums


class ChunkFacts(NamedTuple):
    snapshot_id: str
    sequence: int
    size: int
    crc32: int
    store: str
    digest: Digest


class Point(NamedTuple):
    """The chain's word on a batch: number and digest of the increment at some offset, and the positions after it."""

    batch: int
    digest: Digest
    positions: dict[str, int]


@dataclass
class SnapshotLog:
    """The contents of one partition of T-QuanLiang.

    Attributes:
        damaged: offset → why the record cannot be used. A violation only if something leads to it.
    """

    logs: Logs
    topic: str
    partition: int
    bounds: Bounds
    chunks: dict[int, ChunkFacts] = field(default_factory=dict)
    manifests: dict[int, wire.Manifest] = field(default_factory=dict)
    damaged: dict[int, str] = field(default_factory=dict)
    judged: dict[tuple[str, int], bool] = field(default_factory=dict)

    def scan(self, verdict: Verdict) -> None:
        """Read all of it, once. Nothing here is transactional: foreign transactions are looked through."""
        for record in self.logs.read(self.topic, self.partition, self.bounds.start, self.bounds.high, committed=False):
            if wire.is_foreign(record.value, record.headers):
                verdict.counts["foreign records"] += 1
                continue
            value = record.value or b""
            try:
                entry = wire.decode(value)
            except wire.Damaged as error:
                self.damaged[record.offset] = str(error)
                continue
            if isinstance(entry, wire.Manifest):
                self.manifests[record.offset] = entry
            elif isinstance(entry, wire.Chunk):
                self.chunks[record.offset] = self._facts(record.offset, value, entry)
        verdict.counts["chunks"] += len(self.chunks)

    def wanted(self) -> frozenset[int]:
        """Offsets in T-ZengLiang that manifests speak of."""
        return frozenset(manifest.increment_offset for manifest in self.manifests.values())

    def judge(self, pointer: wire.Pointer, points: dict[int, Point], verdict: Verdict) -> None:
        """Judge each pointer once, at the first increment that carries it; its batch was committed before."""
        key = pointer.snapshot_id, pointer.manifest_offset
        if key in self.judged:
            return
        if pointer.first_chunk_offset < self.bounds.start:
            self.judged[key] = False
            verdict.counts["snapshots trimmed since"] += 1
            return
        problems = list(self._problems(pointer, points))
        self.judged[key] = not problems
        verdict.counts["snapshots checked"] += 1
        for problem in problems:
            what = f"snapshot {pointer.snapshot_id} of batch {pointer.batch}: {problem}"
            verdict.add(Check.SNAPSHOTS, self._at(pointer.manifest_offset), what)

    def judge_last(self, pointers: Iterable[wire.Pointer], verdict: Verdict) -> None:
        """Check that what the last increment points to is kept: nothing of it may be trimmed."""
        for pointer in pointers:
            if pointer.first_chunk_offset < self.bounds.start:
                what = (
                    f"the last increment points to snapshot {pointer.snapshot_id}, which begins at"
                    f" {pointer.first_chunk_offset}; the log begins at {self.bounds.start}"
                )
                verdict.add(Check.SNAPSHOTS, self._at(pointer.manifest_offset), what)
        orphans = len(self.manifests.keys() - {offset for _, offset in self.judged})
        verdict.counts["orphaned manifests"] += orphans

    def covering(self, increment_offset: int, log: str, log_id: str) -> wire.Manifest | None:
        """A whole snapshot of the state after the increment at this offset of the topic `log` with this id, pointed to
        or not: another topic of that name had other increments there."""
        for manifest in self.manifests.values():
            here = manifest.topic_ids.get(log, "") == log_id
            if here and manifest.increment_offset == increment_offset and not list(self._content(manifest)):
                return manifest
        return None

    def stored(self, manifest: wire.Manifest) -> Stored:
        """The state itself, read again."""
        found: Stored = {}
        wanted = {ref.offset for ref in manifest.chunks}
        if not wanted:
            return found
        first, end = min(wanted), max(wanted) + 1
        for record in self.logs.read(self.topic, self.partition, first, end, committed=False):
            if record.offset in wanted:
                chunk = wire.decode(record.value or b"")
                assert isinstance(chunk, wire.Chunk)
                for each in chunk.slices:
                    found.setdefault(chunk.store, {}).update(each.entries)
        return found

    def _facts(self, offset: int, value: bytes, chunk: wire.Chunk) -> ChunkFacts:
        """Measure a chunk; declared sums that are not those of the entries make it damaged."""
        whole = Sums()
        for each in chunk.slices:
            part = Sums()
            for key, entry in each.entries.items():
                part.put(key, entry)
            if (part.a, part.b) != (each.a, each.b):
                self.damaged[offset] = "a slice's sums are not those of its entries"
            whole.add(part.count, part.a, part.b)
        crc32 = zlib.crc32(value)
        return ChunkFacts(chunk.snapshot_id, chunk.sequence, len(value), crc32, chunk.store, whole.digest)

    def _problems(self, pointer: wire.Pointer, points: dict[int, Point]) -> Iterable[str]:
        manifest = self.manifests.get(pointer.manifest_offset)
        if manifest is None:
            why = self.damaged.get(pointer.manifest_offset, "no manifest is there")
            yield f"the pointer leads to nothing: {why}"
            return
        said = manifest.snapshot_id, manifest.batch, manifest.increment_offset, manifest.digest
        if said != (pointer.snapshot_id, pointer.batch, pointer.increment_offset, pointer.digest):
            yield f"the manifest says {said}, the pointer {pointer}"
        lowest = min((ref.offset for ref in manifest.chunks), default=pointer.manifest_offset)
        if lowest != pointer.first_chunk_offset:
            yield f"its first chunk is at {lowest}, the pointer says {pointer.first_chunk_offset}"
        yield from self._content(manifest)
        point = points.get(manifest.increment_offset)
        if point is not None and point != (manifest.batch, manifest.digest, manifest.positions):
            yield f"it is of another state than the increment at {manifest.increment_offset}: {point}"

    def _content(self, manifest: wire.Manifest) -> Iterable[str]:
        sums: dict[str, Sums] = {}
        for sequence, ref in enumerate(manifest.chunks):
            chunk = self.chunks.get(ref.offset)
            if chunk is None or ref.offset in self.damaged:
                yield f"chunk at {ref.offset}: {self.damaged.get(ref.offset, 'is not there')}"
                continue
            found = chunk.snapshot_id, chunk.sequence, chunk.size, chunk.crc32
            if found != (manifest.snapshot_id, sequence, ref.size, ref.crc32):
                yield f"chunk at {ref.offset} is {found}, the manifest says {ref}"
            sums.setdefault(chunk.store, Sums()).add(chunk.digest.entries, chunk.digest.a, chunk.digest.b)
        by_store = {store: each.digest for store, each in sums.items() if each.count}
        whole = wire.in_state(by_store)
        if not whole == manifest.entries_digest == manifest.digest:
            yield f"chunks add up to {whole}, the manifest says {manifest.entries_digest} / {manifest.digest}"
        if whole.entries != manifest.entry_count:
            yield f"{whole.entries} entries, the manifest says {manifest.entry_count}"
        if manifest.store_digests != said_by_store(by_store):
            yield f"the stores add up to {by_store}, the manifest says {manifest.store_digests}"

    def _at(self, offset: int) -> str:
        return f"{self.topic}-{self.partition}-{offset}"

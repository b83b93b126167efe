"""The word of the own topics, by full scans: no line of the product but its decoder."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

from snapreplay.app.record import RawRecord
from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from snapreplay.snapshots.format.records import Chunk, Claim, Increment, LogEntry, Manifest, Pointer
from tests.simulation.log import Log, Written

T = TypeVar("T", bound=LogEntry)
KINDS: dict[type, RecordKind] = {Claim: RecordKind.CLAIM, Increment: RecordKind.INCREMENT}
_decoded = lru_cache(maxsize=2048)(decode)


def _entry(record: RawRecord | None) -> LogEntry | None:
    """None for nothing, and for a foreign record."""
    value = record.value or b"" if record is not None else b""
    return _decoded(value) if kind_of(value) is not None else None


def newest(log: Log, kind: type[T], below: int | None = None) -> Iterator[tuple[int, T]]:
    """Yield committed claims or increments with their offsets, the newest first. With `below` = LSO those that a
    reader sees: above it, and where a topic was deleted, the marker of what is decided may be missing."""
    for offset in reversed(range(log.end if below is None else min(below, log.end))):
        record = log.visible(offset, committed_only=True)
        if record is not None and kind_of(record.value or b"") is KINDS[kind]:
            entry = _decoded(record.value or b"")
            assert isinstance(entry, kind)
            yield offset, entry


def ever(log: Log) -> Iterator[tuple[Claim | Increment, Written]]:
    """All claims and increments that were ever committed, in the order of writing, also those that are lost."""
    for written in log.ever():
        kind = kind_of(written.record.value or b"")
        if kind in (RecordKind.CLAIM, RecordKind.INCREMENT):
            entry = _decoded(written.record.value or b"")
            assert isinstance(entry, Claim | Increment)
            yield entry, written


def at(log: Log, offset: int) -> LogEntry | None:
    return _entry(log.records[offset]) if 0 <= offset < log.end else None


def chunks(log: Log, pointer: Pointer, *, lost: bool = False) -> list[Chunk] | None:
    """Return the chunks of the snapshot that it leads to; None unless that is there, and whole. With `lost` it was
    there and whole."""

    def entries(offset: int) -> Iterator[LogEntry]:
        were = [each.record for each in log.lost if lost and each.record.offset == offset]
        found = [at(log, offset), *map(_entry, were)]
        yield from (each for each in found if each is not None)

    snapshot = pointer.snapshot_id
    manifests = (each for each in entries(pointer.manifest_offset) if isinstance(each, Manifest))
    wanted = (snapshot, pointer.batch)
    manifest = next((each for each in manifests if (each.snapshot_id, each.batch) == wanted), None)
    if manifest is None:
        return None
    found = []
    for ref in manifest.chunks:
        parts = (each for each in entries(ref.offset) if isinstance(each, Chunk))
        meant = (snapshot, ref.sequence)  # where one is lost, a copy of another one may lie
        chunk = next((each for each in parts if (each.snapshot_id, each.sequence) == meant), None)
        if chunk is None:
            return None
        found.append(chunk)
    return found


def witnesses(log: Log, after: int, to: int, before: int) -> list[int]:
    """Batches of owners' manifests that the brokers have: later than one batch, up to another, written before what has
    a serial number. They show that increments were lost."""
    found = []
    for offset in range(log.start, log.end):
        manifest = at(log, offset) if log.places[offset].serial < before else None
        if isinstance(manifest, Manifest) and manifest.proposed_by is None:
            found += [manifest.batch] if after < manifest.batch <= to else []
    return found

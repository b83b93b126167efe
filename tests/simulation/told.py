"""What the own topics say, by full scans: no line of the product but its decoder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from snapreplay.snapshots.format.records import (
    Chunk,
    Claim,
    Increment,
    LogEntry,
    Manifest,
    Pointer,
)
from tests.simulation.log import Log

T = TypeVar("T", bound=LogEntry)
KINDS: dict[type, RecordKind] = {Claim: RecordKind.CLAIM, Increment: RecordKind.INCREMENT}
_decoded = lru_cache(maxsize=2048)(decode)


def newest(log: Log, kind: type[T], below: int | None = None) -> Iterator[tuple[int, T]]:
    """Committed claims or increments with their offsets, the newest first. With `below` = LSO those that a reader sees:
    above it, and where a topic was deleted, the marker of what is decided may be missing."""
    for offset in reversed(range(log.end if below is None else min(below, log.end))):
        record = log.visible(offset, committed_only=True)
        if record is not None and kind_of(record.value or b"") is KINDS[kind]:
            entry = _decoded(record.value or b"")
            assert isinstance(entry, kind)
            yield offset, entry


def at(log: Log, offset: int) -> LogEntry | None:
    """Trimmed or not; None where nothing is."""
    record = log.records[offset] if 0 <= offset < log.end else None
    return _decoded(record.value) if record is not None and record.value else None


def chunks(log: Log, pointer: Pointer) -> list[Chunk] | None:
    """Of the snapshot that it leads to; None unless that is there, and whole."""
    manifest = at(log, pointer.manifest_offset)
    if not isinstance(manifest, Manifest):
        return None
    if (manifest.snapshot_id, manifest.batch) != (pointer.snapshot_id, pointer.batch):
        return None
    found = [at(log, ref.offset) for ref in manifest.chunks]
    whole = [each for each in found if isinstance(each, Chunk)]
    whole = [each for each in whole if each.snapshot_id == pointer.snapshot_id]
    return whole if len(whole) == len(found) else None

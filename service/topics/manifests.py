"""Finds manifests in the snapshots topic, the newest ones first, whether or not anything points to them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.search import windows
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import Manifest
from snapreplay.snapshots.log.place import decode_as, is_ours

TAIL_OFFSETS_MAX = 16_384
"""How far back the newest manifest of an owner is looked for. Snapshots that were never finished may lie behind it: a
million keys are 20 to 200 records each."""


def manifest_in(value: bytes, log: TopicPartition, offset: int) -> Manifest | None:
    """Return the manifest, if it can be read and its seal is right; garbage that nothing points to is ignored."""
    try:
        if not is_ours(value, ()) or kind_of(value) is not RecordKind.MANIFEST:
            return None
        return decode_as(Manifest, value, log, offset)
    except SnapreplayError:
        return None


async def newest_first(
    reader: Reader, log: TopicPartition, bounds: Bounds
) -> AsyncIterator[tuple[int, Manifest]]:
    """Yield the manifests within `bounds` with their offsets, by windows that grow backwards from the end: what
    lies behind the one that is looked for costs little."""
    for window in windows(bounds.end_offset, bounds.start_offset):
        found: list[tuple[int, Manifest]] = []
        async for records in reader.read(log, window.start_offset, window.end_offset):
            for record in records:
                manifest = manifest_in(record.value or b"", log, record.offset)
                if manifest is not None:
                    found.append((record.offset, manifest))
        for each in reversed(found):
            yield each


async def newest_of_owner(reader: Reader, log: TopicPartition, bounds: Bounds) -> Manifest | None:
    """Return the newest manifest in the tail that an owner wrote; a proposal says nothing about the topics of
    today."""
    start_offset = max(bounds.start_offset, bounds.end_offset - TAIL_OFFSETS_MAX)
    async for _, manifest in newest_first(reader, log, Bounds(start_offset, bounds.end_offset)):
        if manifest.proposed_by is None:
            return manifest
    return None

"""Writes a batch's changes as records before its increment, and reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from zlib import crc32

from snapreplay.counted import counted
from snapreplay.errors import DamagedError, StopError
from snapreplay.snapshots.format.envelope import HEADER_BYTES, RECORD_BYTES_MAX, decode, encode
from snapreplay.snapshots.format.records import ChangesRecord, ChangesRef, LogEntry

Entries = dict[bytes, bytes | None]
"""Encoded key → encoded value, None for a tombstone."""

_FRAME_BYTES = HEADER_BYTES + 64  # envelope, field names, batch, part, number of stores
_STORE_BYTES = 10  # headers of a store's name and of its map
_ENTRY_BYTES = 10  # two bin headers of at most five bytes


class EntryTooLarge(StopError):
    """One entry (key and value) is larger than a record of the app's topics may be.

    Safe: No batch and no snapshot with this entry was committed, and what was committed before stays.
    """


def split_changes(
    batch: int, changes: Mapping[str, Entries], record_bytes_max: int = RECORD_BYTES_MAX
) -> tuple[list[bytes], ChangesRef]:
    """Return the encoded changes records of a batch, in the order to write them, and their reference
    for the increment.

    Each has at most `record_bytes_max` bytes and is compressed if that pays. Without changes there is
    no record. The order of the changes is kept.

    Raises:
        EntryTooLarge: an entry does not fit into a record.
    """
    values = [
        encode(ChangesRecord(batch, part, stores), compress=True)
        for part, stores in enumerate(_parts(changes, record_bytes_max - _FRAME_BYTES))
    ]
    return values, ChangesRef(len(values), sum(map(len, changes.values())), joined_crc32(values))


def check_changes(
    ref: ChangesRef, values: Sequence[bytes], decoded: Sequence[LogEntry | None] | None = None
) -> Iterator[dict[str, Entries]]:
    """Return store name → changes for each record, in the order to apply, after all of them proved intact.

    Args:
        decoded: what `decode` gave for each value, where that was done before; None for one that cannot be read.

    Raises:
        DamagedError: they are not the records that the increment names (at the call), or one is not
            what its kind says (at that record).
        UnknownFormatError: a newer version wrote them.
    """
    if len(values) != ref.record_count:
        raise DamagedError(
            f"the increment names {counted(ref.record_count, 'changes record')}, but before it there are {len(values)}",
            found=len(values),
            recorded=ref.record_count,
        )
    computed = joined_crc32(values)
    if computed != ref.crc32:
        raise DamagedError(f"the changes records have crc32 {computed:08x}, but their increment says {ref.crc32:08x}")
    return _stores_of(map(decode, values) if decoded is None else decoded)


def joined_crc32(values: Sequence[bytes]) -> int:
    """Return the crc32 of all values, joined in order; 0 for none."""
    checksum = 0
    for value in values:
        checksum = crc32(value, checksum)
    return checksum


def _stores_of(records: Iterable[LogEntry | None]) -> Iterator[dict[str, Entries]]:
    for part, record in enumerate(records):
        if not isinstance(record, ChangesRecord) or record.part != part:
            raise DamagedError(f"record {part} before the increment is not part {part} of its changes")
        yield record.stores


def _parts(changes: Mapping[str, Entries], room_bytes: int) -> Iterator[dict[str, Entries]]:
    """Put all stores into one record if they fit; otherwise each store into as few records as possible."""
    stores = {store: entries for store, entries in changes.items() if entries}
    frames = {store: len(store.encode()) + _STORE_BYTES for store in stores}
    # Every batch passes here: no Python code per entry.
    if sum(map(_size_bytes, stores.values())) + sum(frames.values()) <= room_bytes:
        if stores:
            yield stores
        return
    for store, entries in stores.items():
        for group in _groups(entries, room_bytes - frames[store]):
            yield {store: group}


def _size_bytes(entries: Entries) -> int:
    values = sum(map(len, filter(None, entries.values())))
    return sum(map(len, entries)) + values + _ENTRY_BYTES * len(entries)


def _groups(changes: Entries, room_bytes: int) -> Iterator[Entries]:
    """Make as few groups as possible, by size before compression."""
    if _size_bytes(changes) <= room_bytes:
        yield changes
        return
    group: Entries = {}
    left_bytes = room_bytes
    for key, value in changes.items():
        size_bytes = len(key) + len(value or b"") + _ENTRY_BYTES
        if size_bytes > room_bytes:
            raise EntryTooLarge(
                f"the change of key {key[:64]!r} has {size_bytes} bytes, but a record has room for {room_bytes}",
                hint="keep less under one key: split the value over several keys",
                size_bytes=size_bytes,
            )
        if size_bytes > left_bytes:
            yield group
            group, left_bytes = {}, room_bytes
        group[key] = value
        left_bytes -= size_bytes
    yield group

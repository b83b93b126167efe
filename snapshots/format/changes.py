"""Writes a batch's changes as records before its increment, and reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

from snapreplay.counted import counted
from snapreplay.errors import DamagedError, StopError
from snapreplay.snapshots.format.envelope import HEADER_BYTES, RECORD_BYTES_MAX, decode, encode
from snapreplay.snapshots.format.records import DEFAULT_STORE, ChangesRecord, ChangesRef
from snapreplay.state.contract import StateChanges

_FRAME_BYTES = HEADER_BYTES + 64  # envelope, field names, batch, part, store count, map length
_ENTRY_BYTES = 10  # two bin headers of at most five bytes


class EntryTooLarge(StopError):
    """One key with its value is larger than a record of our topics may be."""


def split_changes(
    batch: int,
    changes: StateChanges,
    record_bytes_max: int = RECORD_BYTES_MAX,
    store: str = DEFAULT_STORE,
) -> tuple[list[bytes], ChangesRef]:
    """Return the encoded changes records of a batch, in the order to write them, and their reference
    for the increment.

    Each has at most `record_bytes_max` bytes and is compressed if that pays. Without changes there is
    no record. The order of the changes is kept.

    Raises:
        EntryTooLarge: an entry does not fit into a record.
    """
    room_bytes = record_bytes_max - _FRAME_BYTES - len(store.encode())
    values = [
        encode(ChangesRecord(batch, part, {store: group}), compress=True)
        for part, group in enumerate(_groups(changes, room_bytes))
    ]
    return values, ChangesRef(len(values), len(changes), joined_crc32(values))


def check_changes(
    ref: ChangesRef, values: Sequence[bytes]
) -> Iterator[dict[str, dict[bytes, bytes | None]]]:
    """Return store name → changes for each record, in the order to apply, after all of them proved intact.

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
        raise DamagedError(
            f"the changes records have crc32 {computed:08x}, but their increment says {ref.crc32:08x}"
        )
    return _stores_of(values)


def joined_crc32(values: Sequence[bytes]) -> int:
    """Return the crc32 of all values, joined in order; 0 for none."""
    checksum = 0
    for value in values:
        checksum = crc32(value, checksum)
    return checksum


def _stores_of(values: Sequence[bytes]) -> Iterator[dict[str, dict[bytes, bytes | None]]]:
    for part, value in enumerate(values):
        record = decode(value)
        if not isinstance(record, ChangesRecord) or record.part != part:
            raise DamagedError(
                f"record {part} before the increment is not part {part} of its changes"
            )
        yield record.stores


def _groups(changes: StateChanges, room_bytes: int) -> Iterator[dict[bytes, bytes | None]]:
    """As few groups as possible, by size before compression."""
    # Every batch passes here: no Python code per entry.
    all_bytes = sum(map(len, changes)) + sum(map(len, filter(None, changes.values())))
    if all_bytes + _ENTRY_BYTES * len(changes) <= room_bytes:
        if changes:
            yield changes if isinstance(changes, dict) else dict(changes)
        return
    group: dict[bytes, bytes | None] = {}
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

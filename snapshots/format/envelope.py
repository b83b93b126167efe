"""Converts records of our topics to bytes and back: `docs/FORMAT.md`, "Envelope".

Twelve bytes that no version ever moves, then the body. Any bytes give the record or one of two
errors: DamagedError (they are not the bytes that were written) and UnknownFormatError (they are, but
a newer version wrote them). The checksum is checked before the version, so that a flipped version
byte counts as damage, not as a newer version. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

import msgspec
import zstandard

from snapreplay.errors import DamagedError, StopError, UnknownFormatError
from snapreplay.snapshots.format.records import ChangesRecord, Chunk, Claim, Increment, LogEntry, Manifest

MAGIC = b"SNRP"
FORMAT_VERSION = 1
RECORD_BYTES_MAX = 900_000
"""Limit for what we write: below the defaults of client and broker (1 MiB), headers and framing included."""
BODY_BYTES_MAX = 16 * 1024 * 1024
"""Limit for what we read, decompressed, so that no record can exhaust the memory: 4 times what the chunk writer packs.
"""

Headers = tuple[tuple[str, bytes], ...]
KIND_HEADER = "snapreplay.kind"
FORMAT_HEADER = "snapreplay.format"
SNAPSHOT_HEADER = "snapreplay.snapshot"

_LAYOUT = struct.Struct(">4sBBBBI")
HEADER_BYTES = _LAYOUT.size
_PLAIN, _ZSTD = 0, 1
# Below this zstd saves less than its call costs; above, 225 kB of changes take 0.25 ms (zstd-1,
# measured).
_WORTH_COMPRESSING_BYTES = 4096
_LEVEL = 1


class RecordKind(IntEnum):
    """The kind of a record; byte 5 of its value."""

    CLAIM = 1
    CHANGES = 2
    INCREMENT = 3
    CHUNK = 4
    MANIFEST = 5


KINDS: dict[type, RecordKind] = {
    Claim: RecordKind.CLAIM,
    ChangesRecord: RecordKind.CHANGES,
    Increment: RecordKind.INCREMENT,
    Chunk: RecordKind.CHUNK,
    Manifest: RecordKind.MANIFEST,
}
_encode_body = msgspec.msgpack.Encoder().encode
# msgspec packs a struct of more than 15 fields with the long header of a map, also if it leaves some of them out.
_LONG_MAP, _LONG_MAP_FIELDS, _SHORT_MAP = b"\xde\x00", 16, 0x80
_DECODERS: dict[int, Callable[[bytes], LogEntry]] = {
    kind: msgspec.msgpack.Decoder(record).decode for record, kind in KINDS.items()
}
_HEADERS: dict[RecordKind, Headers] = {
    kind: ((KIND_HEADER, kind.name.lower().encode()), (FORMAT_HEADER, str(FORMAT_VERSION).encode()))
    for kind in RecordKind
}


_SPLIT_BY_THEIR_WRITERS = (RecordKind.CHANGES, RecordKind.CHUNK)


class RecordTooLarge(StopError):
    """A record that cannot be split is larger than 900,000 bytes, the limit of snapreplay's own records; nothing was
    written.

    Safe: No batch and no snapshot with this record was committed, and what was committed before stays.
    """


class Envelope(NamedTuple):
    """A checked record, its body decompressed and not yet decoded."""

    kind: RecordKind
    body: bytes


def encode(entry: LogEntry, *, compress: bool = False) -> bytes:
    """Return the value of a record. The same entry gives the same bytes, except with another zstd version.

    `compress` allows zstd for a body of 4 KiB or more, and uses it if that saves a tenth. Changes
    and chunks may come out larger than `RECORD_BYTES_MAX`: their writers split them.

    Raises:
        RecordTooLarge: a claim, increment or manifest above `RECORD_BYTES_MAX`.
    """
    kind = KINDS[type(entry)]
    value = enveloped(kind, body_of(entry), compress=compress)
    if len(value) > RECORD_BYTES_MAX and kind not in _SPLIT_BY_THEIR_WRITERS:
        raise _too_large(entry, len(value))
    return value


def body_of(entry: LogEntry) -> bytes:
    """Pack the entry, the first half of `encode`, under the interpreter's lock."""
    body = _encode_body(entry)
    if body[:2] == _LONG_MAP and body[2] < _LONG_MAP_FIELDS:  # the format demands the shortest form
        return bytes((_SHORT_MAP | body[2],)) + body[3:]
    return body


def enveloped(kind: RecordKind, body: bytes, *, compress: bool = False) -> bytes:
    """Make the envelope, the other half, for any size. zstd and checksum release the interpreter's lock, so a
    thread may do it."""
    compression = _PLAIN
    if compress and len(body) >= _WORTH_COMPRESSING_BYTES:
        packed = zstandard.ZstdCompressor(level=_LEVEL).compress(body)
        if len(packed) < 0.9 * len(body):
            body, compression = packed, _ZSTD
    described = bytes((FORMAT_VERSION, kind, compression, 0))
    checksum = crc32(body, crc32(described))
    return b"".join((MAGIC, described, checksum.to_bytes(4, "big"), body))


def decode(value: bytes) -> LogEntry:
    """Return the record that `encode` was given.

    Raises:
        DamagedError: magic, checksum, length or structure is not what was written, or the body
            is larger than `BODY_BYTES_MAX`.
        UnknownFormatError: intact, but of a format version, kind or compression that this build
            does not know.
    """
    kind, body = open_envelope(value)
    try:
        return _DECODERS[kind](body)
    # A str that is no UTF-8 is a UnicodeDecodeError, which is a ValueError like msgspec's own
    # errors.
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"the body of this {kind.name.lower()} record cannot be decoded: {error}") from error


def open_envelope(value: bytes) -> Envelope:
    """Check everything but the body's structure: about 7 GB/s, against 0.3 GB/s for `decode`.

    Raises:
        DamagedError, UnknownFormatError: as `decode`.
    """
    if len(value) < HEADER_BYTES:
        raise DamagedError(f"a record cannot have {len(value)} bytes: its header alone has {HEADER_BYTES}")
    magic, version, kind, compression, reserved, checksum = _LAYOUT.unpack_from(value)
    if magic != MAGIC:
        raise DamagedError(f"the record begins with {magic!r}, not with {MAGIC!r}")
    view = memoryview(value)
    computed = crc32(view[HEADER_BYTES:], crc32(view[4:8]))
    if computed != checksum:
        raise DamagedError(f"the record's crc32 is {computed:08x}, but it says {checksum:08x}")
    if version != FORMAT_VERSION:
        raise _unknown("format version", version, str(FORMAT_VERSION))
    if kind not in _DECODERS:
        raise _unknown("record kind", kind, ", ".join(f"{k} {k.name.lower()}" for k in RecordKind))
    if compression not in (_PLAIN, _ZSTD):
        raise _unknown("compression", compression, "0 none, 1 zstd")
    if reserved:
        raise _unknown("reserved byte", reserved, "0")
    body = value[HEADER_BYTES:]
    return Envelope(RecordKind(kind), _decompress(body) if compression == _ZSTD else _limited(body))


def kind_of(value: bytes) -> RecordKind | None:
    """Return what the record says it is, with only magic and kind checked; None if it is foreign."""
    if len(value) < HEADER_BYTES or not value.startswith(MAGIC) or value[5] not in _DECODERS:
        return None
    return RecordKind(value[5])


def headers_of(entry: LogEntry) -> Headers:
    """Return record headers for people and for routing without decoding; nothing is decided by them alone."""
    snapshot_id = entry.snapshot_id if isinstance(entry, Chunk | Manifest) else ""
    return headers_for(KINDS[type(entry)], snapshot_id)


def headers_for(kind: RecordKind, snapshot_id: str = "") -> Headers:
    """Return the same for a record that is already encoded; chunks and manifests also name their snapshot."""
    headers = _HEADERS[kind]
    return (*headers, (SNAPSHOT_HEADER, snapshot_id.encode())) if snapshot_id else headers


def _unknown(what: str, found: int, known: str) -> UnknownFormatError:
    return UnknownFormatError(
        f"the record has {what} {found}, but this build knows only {known}",
        hint="a newer snapreplay wrote it: install that version or a later one with `pip install --upgrade snapreplay`",
        found=found,
        known=known,
    )


def _too_large(entry: LogEntry, size_bytes: int) -> RecordTooLarge:
    name = type(entry).__name__.lower()
    return RecordTooLarge(
        f"this {name} would have {size_bytes} bytes, but a record may have at most {RECORD_BYTES_MAX}",
        hint="spread the state over more partitions"
        if isinstance(entry, Manifest)
        else "make batches smaller with the setting `batch.records_max`",
        size_bytes=size_bytes,
    )


def _limited(body: bytes) -> bytes:
    if len(body) > BODY_BYTES_MAX:
        raise DamagedError(f"the body has {len(body)} bytes, but at most {BODY_BYTES_MAX} are allowed")
    return body


def _decompress(packed: bytes) -> bytes:
    """Check the frame's own size first, because zstandard would allocate any size that it names."""
    try:
        size_bytes = zstandard.frame_content_size(packed)
        if not 0 <= size_bytes <= BODY_BYTES_MAX:
            raise DamagedError(
                f"the compressed body claims {size_bytes} bytes, but at most {BODY_BYTES_MAX} are allowed"
            )
        return zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DamagedError(f"the compressed body cannot be read: {error}") from error

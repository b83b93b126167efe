"""docs/FORMAT.md "Envelope" and "Bodies", read by a second reader: msgpack, zstandard, zlib, no code of the service."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import msgpack
import zstandard

from tests.checker.digest import Digest

MAGIC = b"SNRP"
HEADER_BYTES = 12
BODY_BYTES_MAX = 16 * 1024 * 1024
CLAIM, CHANGES, INCREMENT, CHUNK, MANIFEST = 1, 2, 3, 4, 5
KINDS = {1: "claim", 2: "changes", 3: "increment", 4: "chunk", 5: "manifest"}


class Damaged(Exception):
    """Not what FORMAT.md says a record is."""


class Claim(NamedTuple):
    claim_id: str
    app_id: str
    process_id: str


class Changes(NamedTuple):
    batch: int
    part: int
    stores: dict[str, dict[bytes, bytes | None]]


class Range(NamedTuple):
    """[start, end) of an input topic; `records` were read there."""

    topic: str
    start: int
    end: int
    records: int


class Pointer(NamedTuple):
    snapshot_id: str
    manifest_offset: int
    first_chunk_offset: int
    batch: int
    increment_offset: int
    digest: Digest | None


class ChangesRef(NamedTuple):
    records: int
    entries: int
    crc32: int


class Increment(NamedTuple):
    app_id: str
    owner_epoch: int
    batch: int
    previous_offset: int
    ranges: list[Range]
    positions: dict[str, int]
    record_count: int
    skipped: list[tuple[str, int, int]]
    pointers: list[Pointer]
    changes: ChangesRef | None
    outputs: dict[str, int]
    outputs_xxh64: dict[str, int]
    digest: Digest | None
    start_offsets: dict[str, int]
    decision: dict[str, str] | None
    topic_ids: dict[str, str]

    @property
    def begins_anew(self) -> bool:
        """With a state that no increment before it has: the chain begins here."""
        return self.decision is not None and self.previous_offset == self.owner_epoch

    @property
    def begun_by_owner(self) -> bool:
        """Its log was replaced or cut under it. Otherwise an operator has accepted the state."""
        finding = (self.decision or {}).get("finding", "")
        return self.begins_anew and finding.startswith("increments-replaced-")


class Chunk(NamedTuple):
    """`slices`: (declared a, declared b, entries) each."""

    snapshot_id: str
    sequence: int
    slices: list[tuple[int, int, dict[bytes, bytes]]]


class ChunkRef(NamedTuple):
    offset: int
    sequence: int
    size: int
    crc32: int


class Manifest(NamedTuple):
    app_id: str
    snapshot_id: str
    owner_epoch: int
    batch: int
    increment_offset: int
    positions: dict[str, int]
    chunks: list[ChunkRef]
    entry_count: int
    digest: Digest | None
    entries_digest: Digest
    topic_ids: dict[str, str]


Entry = Claim | Changes | Increment | Chunk | Manifest


def is_foreign(value: bytes | None, headers: Any) -> bool:
    """Neither our magic nor our headers: somebody else's record, to be left alone."""
    named = any(name.startswith("snapreplay.") for name, _ in headers or ())
    return not (value or b"").startswith(MAGIC) and not named


def decode(value: bytes) -> Entry:
    """
    Raises:
        Damaged: says what is wrong with it.
    """
    kind, body = _opened(value)
    try:
        fields = msgpack.unpackb(
            body,
            max_str_len=BODY_BYTES_MAX,
            max_bin_len=BODY_BYTES_MAX,
            max_array_len=BODY_BYTES_MAX,
            max_map_len=BODY_BYTES_MAX,
        )
        entry: Entry = _READERS[kind](fields)
    except (ValueError, KeyError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise Damaged(f"body of a {KINDS[kind]}: {type(error).__name__}: {error}") from error
    return entry


def _opened(value: bytes) -> tuple[int, bytes]:
    if len(value) < HEADER_BYTES or not value.startswith(MAGIC):
        raise Damaged(f"{len(value)} bytes that begin with {value[:4]!r}")
    version, kind, compression, reserved = value[4:8]
    stored = int.from_bytes(value[8:12], "big")
    computed = zlib.crc32(value[12:], zlib.crc32(value[4:8]))
    if computed != stored:
        raise Damaged(f"crc32 is {computed:08x}, the envelope says {stored:08x}")
    if version != 1 or kind not in KINDS or compression not in (0, 1) or reserved != 0:
        raise Damaged(f"version {version}, kind {kind}, compression {compression}/{reserved}")
    return kind, _plain(value[12:]) if compression else value[12:]


def _plain(packed: bytes) -> bytes:
    try:
        if not 0 <= zstandard.frame_content_size(packed) <= BODY_BYTES_MAX:
            raise Damaged("a compressed body of unknown size, or above 16 MiB")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise Damaged(f"compressed body: {error}") from error


def _claim(f: Any) -> Claim:
    return Claim(f["claim_id"], f["app_id"], f["process_id"])


def _changes(f: Any) -> Changes:
    return Changes(f["batch"], f["part"], f["stores"])


def _increment(f: Any) -> Increment:
    ref = f["changes"]
    return Increment(
        f["origin"]["app_id"],
        f["owner_epoch"],
        f["batch"],
        f["previous_offset"],
        [Range(*each[:4]) for each in f["ranges"]],
        f["positions"],
        f["record_count"],
        [(topic, start, end) for topic, start, end, *_ in f["skipped"]],
        [_pointer(each) for each in f["pointers"]],
        ref and ChangesRef(ref["record_count"], ref["entry_count"], ref["crc32"]),
        f["outputs"],
        f.get("outputs_xxh64", {}),
        _digest(f["digest"]),
        f["genesis"]["start_offsets"],
        f.get("decision"),
        f.get("topic_ids", {}),
    )


def _pointer(f: Any) -> Pointer:
    return Pointer(
        f["snapshot_id"],
        f["manifest_offset"],
        f["first_chunk_offset"],
        f["batch"],
        f["increment_offset"],
        _digest(f["digest"]),
    )


def _chunk(f: Any) -> Chunk:
    slices = [(a, b, entries) for _, a, b, entries, *_ in f["slices"]]
    return Chunk(f["snapshot_id"], f["sequence"], slices)


def _manifest(f: Any) -> Manifest:
    entries_digest = _digest(f["entries_digest"])
    if entries_digest is None:
        raise ValueError("entries_digest is nil")
    return Manifest(
        f["origin"]["app_id"],
        f["snapshot_id"],
        f["owner_epoch"],
        f["batch"],
        f["increment_offset"],
        f["positions"],
        [ChunkRef(*each[:4]) for each in f["chunks"]],
        f["entry_count"],
        _digest(f["digest"]),
        entries_digest,
        f.get("topic_ids", {}),
    )


def _digest(f: Any) -> Digest | None:
    return None if f is None else Digest(*f[:3])


_READERS: dict[int, Any] = {
    CLAIM: _claim,
    CHANGES: _changes,
    INCREMENT: _increment,
    CHUNK: _chunk,
    MANIFEST: _manifest,
}

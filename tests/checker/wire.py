"""docs/FORMAT.md "Envelope", "Bodies" and "Digest" read by a second reader, without code of the service."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgpack
import xxhash
import zstandard

MAGIC = b"SNRP"
HEADER_BYTES = 12
BODY_BYTES_MAX = 16 * 1024 * 1024
LIMITS = {f"max_{what}_len": BODY_BYTES_MAX for what in ("str", "bin", "array", "map")}
CLAIM, CHANGES, INCREMENT, CHUNK, MANIFEST = 1, 2, 3, 4, 5
KINDS = {1: "claim", 2: "changes", 3: "increment", 4: "chunk", 5: "manifest"}


MASK = (1 << 64) - 1
DEFAULT = "default"
"""The store of a state that is one map; its digest is that of the state."""


class Digest(NamedTuple):
    """A digest: how many entries, and the two sums, mod 2^64."""

    entries: int
    a: int
    b: int

    def __str__(self) -> str:
        """Write it as statuses show it: "count:a:b", the sums in 16 hexadecimal digits."""
        return f"{self.entries}:{self.a:016x}:{self.b:016x}"


class Sums:
    """A digest that entries are put into and taken from."""

    def __init__(self) -> None:
        self.count = self.a = self.b = 0

    def put(self, key: bytes, value: bytes) -> None:
        a, b = terms(key, value)
        self.add(1, a, b)

    def take(self, key: bytes, value: bytes) -> None:
        a, b = terms(key, value)
        self.add(-1, -a, -b)

    def add(self, count: int, a: int, b: int) -> None:
        self.count += count
        self.a = (self.a + a) & MASK
        self.b = (self.b + b) & MASK

    @property
    def digest(self) -> Digest:
        return Digest(self.count, self.a, self.b)


def in_state(stores: Mapping[str, Digest]) -> Digest:
    """The digest of a state from those of its stores."""
    whole = Sums()
    for store, found in stores.items():
        factor = xxhash.xxh64_intdigest(store.encode(), 42) | 1 if store != DEFAULT else 1
        whole.add(found.entries, factor * found.a, factor * found.b)
    return whole.digest


def terms(key: bytes, value: bytes) -> tuple[int, int]:
    """Return what an entry adds to both sums."""
    a = xxhash.xxh64_intdigest(value, xxhash.xxh64_intdigest(key, 42))
    b = xxhash.xxh64_intdigest(key, xxhash.xxh64_intdigest(value, 42))
    return a, b


class Damaged(Exception):
    """A record that is not what FORMAT.md says."""


class Claim(NamedTuple):
    claim_id: str
    app_id: str
    process_id: str
    pid: int


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
    stream_time_ms: int
    fired_count: int
    store_digests: dict[str, Digest]
    cleared: list[str]
    begun_input: str | None
    position_anchors: dict[str, tuple[int, int]]

    @property
    def happened(self) -> bool:
        """Whether anything was processed. Else the batch only has a pointer or a digest."""
        return bool(self.ranges or self.fired_count)

    @property
    def begins_anew(self) -> bool:
        """Whether the chain begins here, with a state that no increment before it has."""
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
    store: str
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
    store_digests: dict[str, Digest]


Entry = Claim | Changes | Increment | Chunk | Manifest


def is_foreign(value: bytes | None, headers: Any) -> bool:
    """Neither our magic nor our headers: somebody else's record, to be left alone."""
    named = any(name.startswith("snapreplay.") for name, _ in headers)
    return not (value or b"").startswith(MAGIC) and not named


def decode(value: bytes) -> Entry:
    """
    Raises:
        Damaged: says what is wrong with it.
    """
    kind, body = _opened(value)
    try:
        entry: Entry = _READERS[kind](msgpack.unpackb(body, **LIMITS))
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
    if version != 1 or kind not in KINDS or compression not in (0, 1) or reserved not in (0, 1):
        raise Damaged(f"version {version}, kind {kind}, compression {compression}/{reserved}")
    body = value[12 : -33 - value[-33]] if reserved else value[12:]  # the seal lies behind it
    return kind, _plain(body) if compression else body


def _plain(packed: bytes) -> bytes:
    try:
        if not 0 <= zstandard.frame_content_size(packed) <= BODY_BYTES_MAX:
            raise Damaged("a compressed body of unknown size, or above 16 MiB")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise Damaged(f"compressed body: {error}") from error


def _named(kind: Any, fields: Any, **others: object) -> Any:
    """Fields of the names that FORMAT.md gives them, but for `others`."""
    return kind(**{name: fields[name] for name in kind._fields if name not in others}, **others)


def _increment(f: Any) -> Increment:
    ref = f["changes"]
    increment: Increment = _named(
        Increment,
        f,
        app_id=f["origin"]["app_id"],
        ranges=[Range(*each[:4]) for each in f["ranges"]],
        skipped=[(topic, start, end) for topic, start, end, *_ in f["skipped"]],
        pointers=[_named(Pointer, each, digest=_digest(each["digest"])) for each in f["pointers"]],
        changes=ref and ChangesRef(ref["record_count"], ref["entry_count"], ref["crc32"]),
        outputs_xxh64=f.get("outputs_xxh64", {}),
        digest=_digest(f["digest"]),
        start_offsets=f["genesis"]["start_offsets"],
        decision=f.get("decision"),
        topic_ids=f.get("topic_ids", {}),
        fired_count=f.get("fired_count", 0),
        store_digests=_by_store(f),
        cleared=f.get("cleared", []),
        begun_input=f.get("begun_input"),
        position_anchors={t: (e, crc) for t, (e, crc, *_) in f.get("position_anchors", {}).items()},
    )
    return increment


def _chunk(f: Any) -> Any:
    return _named(Chunk, f, slices=[(a, b, entries) for _, a, b, entries, *_ in f["slices"]])


def _manifest(f: Any) -> Any:
    if f["entries_digest"] is None:
        raise ValueError("entries_digest is nil")
    return _named(
        Manifest,
        f,
        app_id=f["origin"]["app_id"],
        chunks=[ChunkRef(*each[:4]) for each in f["chunks"]],
        digest=_digest(f["digest"]),
        entries_digest=_digest(f["entries_digest"]),
        topic_ids=f.get("topic_ids", {}),
        store_digests=_by_store(f),
    )


def _digest(f: Any) -> Digest | None:
    return None if f is None else Digest(*f[:3])


def _by_store(f: Any) -> dict[str, Digest]:
    return {store: Digest(*found[:3]) for store, found in f.get("store_digests", {}).items()}


_READERS: dict[int, Callable[[Any], Any]] = {
    CLAIM: partial(_named, Claim),
    CHANGES: partial(_named, Changes),
    INCREMENT: _increment,
    CHUNK: _chunk,
    MANIFEST: _manifest,
}

"""docs/FORMAT.md "Envelope", "Bodies" and "Digest" read by a second reader, without code of the service."""

import zlib
from collections.abc import Mapping
from typing import Any

import msgpack
import xxhash
import zstandard
from msgspec import Struct, ValidationError, convert

MAGIC = b"SNRP"
HEADER_BYTES = 12
BODY_BYTES_MAX = 16 * 1024 * 1024
LIMITS = {f"max_{what}_len": BODY_BYTES_MAX for what in ("str", "bin", "array", "map")}
CLAIM, CHANGES, INCREMENT, CHUNK, MANIFEST = 1, 2, 3, 4, 5
MASK = (1 << 64) - 1
DEFAULT = "default"
"""The store of a state that is one map; its digest is that of the state."""


class Digest(Struct, frozen=True, array_like=True):
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


# Only what is judged; a reader passes over what it does not know, and over what is added behind an array.


class Claim(Struct, frozen=True):
    claim_id: str
    app_id: str
    process_id: str
    pid: int


class Changes(Struct, frozen=True):
    batch: int
    part: int
    stores: dict[str, dict[bytes, bytes | None]]


class Range(Struct, frozen=True, array_like=True):
    """[start, end) of an input topic; `records` were read there."""

    topic: str
    start: int
    end: int
    records: int


class Skipped(Struct, frozen=True, array_like=True):
    topic: str
    start: int
    end: int


class Pointer(Struct, frozen=True):
    snapshot_id: str
    manifest_offset: int
    first_chunk_offset: int
    batch: int
    increment_offset: int
    digest: Digest


class ChangesRef(Struct, frozen=True):
    record_count: int
    entry_count: int
    crc32: int


class Origin(Struct, frozen=True):
    app_id: str
    schema_version: int = 1


class Genesis(Struct, frozen=True):
    start_offsets: dict[str, int]


class Increment(Struct, frozen=True):
    origin: Origin
    owner_epoch: int
    batch: int
    previous_offset: int
    ranges: list[Range]
    positions: dict[str, int]
    record_count: int
    skipped: list[Skipped]
    pointers: list[Pointer]
    changes: ChangesRef | None
    outputs: dict[str, int]
    digest: Digest
    genesis: Genesis
    stream_time_ms: int
    outputs_xxh64: dict[str, int] = {}
    decision: dict[str, str] | None = None
    topic_ids: dict[str, str] = {}
    fired_count: int = 0
    store_digests: dict[str, Digest] = {}
    cleared: list[str] = []
    begun_input: str | None = None
    position_anchors: dict[str, list[Any]] = {}

    @property
    def happened(self) -> bool:
        """Whether anything was processed. Else the batch only has a pointer or a digest."""
        return bool(self.ranges or self.fired_count)

    @property
    def begins_chain(self) -> bool:
        """Whether the chain begins here, with a state that no increment before it has."""
        return self.decision is not None and self.previous_offset == self.owner_epoch

    @property
    def changes_inputs(self) -> bool:
        """Whether this decision adds or retires inputs, in the chain as it is."""
        finding = (self.decision or {}).get("finding", "")
        return not self.begins_chain and finding.startswith("inputs-changed-")

    @property
    def upgrades(self) -> bool:
        """Whether the owner has made other entries of the stored ones."""
        finding = (self.decision or {}).get("finding", "")
        return self.begins_chain and finding.startswith("state-upgraded-")

    @property
    def begun_by_owner(self) -> bool:
        """Its log was replaced or cut under it. Otherwise an operator has accepted the state, or it was upgraded."""
        finding = (self.decision or {}).get("finding", "")
        return self.begins_chain and finding.startswith("increments-replaced-")


class Slice(Struct, frozen=True, array_like=True):
    """`a`, `b`: as declared."""

    index: int
    a: int
    b: int
    entries: dict[bytes, bytes]


class Chunk(Struct, frozen=True):
    snapshot_id: str
    sequence: int
    store: str
    slices: list[Slice]


class ChunkRef(Struct, frozen=True, array_like=True):
    offset: int
    sequence: int
    size: int
    crc32: int


class Manifest(Struct, frozen=True):
    snapshot_id: str
    batch: int
    increment_offset: int
    positions: dict[str, int]
    chunks: list[ChunkRef]
    entry_count: int
    digest: Digest
    entries_digest: Digest
    topic_ids: dict[str, str] = {}
    store_digests: dict[str, Digest] = {}


Entry = Claim | Changes | Increment | Chunk | Manifest
KINDS: dict[int, Any] = {CLAIM: Claim, CHANGES: Changes, INCREMENT: Increment, CHUNK: Chunk, MANIFEST: Manifest}


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
        entry: Entry = convert(msgpack.unpackb(body, **LIMITS), KINDS[kind])
    except (ValueError, TypeError, ValidationError, msgpack.UnpackException) as error:
        raise Damaged(f"body of a {KINDS[kind].__name__.lower()}: {type(error).__name__}: {error}") from error
    return entry


def _opened(value: bytes) -> tuple[int, bytes]:
    if len(value) < HEADER_BYTES or not value.startswith(MAGIC):
        raise Damaged(f"{len(value)} bytes that begin with {value[:4]!r}")
    version, kind, compression, reserved = value[4:8]
    stored = int.from_bytes(value[8:12], "big")
    computed = zlib.crc32(value[12:], zlib.crc32(value[4:8]))
    if computed != stored:
        raise Damaged(f"crc32 is {computed:08x}, the envelope says {stored:08x}")
    if version != 1 or kind not in KINDS or compression not in (0, 1) or reserved:
        raise Damaged(f"version {version}, kind {kind}, compression {compression}/{reserved}")
    body = value[12:]
    return kind, _plain(body) if compression else body


def _plain(packed: bytes) -> bytes:
    try:
        if not 0 <= zstandard.frame_content_size(packed) <= BODY_BYTES_MAX:
            raise Damaged("a compressed body of unknown size, or above 16 MiB")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise Damaged(f"compressed body: {error}") from error

"""Records of our topics for tests: arbitrary ones by hypothesis, and sensible ones by hand."""

import typing
from zlib import crc32

import msgspec
from hypothesis import strategies as st

from snapreplay.snapshots.format.chunks import open_chunk, unpacking
from snapreplay.snapshots.format.envelope import HEADER_BYTES, decode
from snapreplay.snapshots.format.records import Chunk, ChunkRef, Genesis, Increment, LogEntry, Manifest, Origin, Pointer
from snapreplay.state.digest import DEFAULT_STORE, EMPTY, Digest

LOG_ENTRIES = typing.get_args(LogEntry)
ORIGIN = Origin("ledger", "1.4", 1, "cpython-3.11 x86_64 msgspec-0.22")
GENESIS = Genesis("cluster-1", 4, {"payments": 0, "refunds": 7})


def entries(kinds: typing.Sequence[type] = LOG_ENTRIES) -> st.SearchStrategy[LogEntry]:
    """Any record of any kind; every field of it drawn by its declared type."""
    return st.one_of(*[_of(kind) for kind in kinds])


def _of(kind: typing.Any) -> st.SearchStrategy[typing.Any]:
    simple: dict[typing.Any, st.SearchStrategy[typing.Any]] = {
        int: st.integers(-(2**63), 2**64 - 1),
        str: st.text(max_size=20),
        bytes: st.binary(max_size=20),
        type(None): st.none(),
    }
    if kind in simple:
        return simple[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        types = typing.get_type_hints(kind)
        return st.builds(kind, **{name: _of(types[name]) for name in kind.__struct_fields__})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return st.lists(_of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(_of(arguments[0]), _of(arguments[1]), max_size=3)
    return st.one_of(*[_of(argument) for argument in arguments])


def pointer(batch: int, **changed: typing.Any) -> Pointer:
    """A pointer to the snapshot of `batch`, which is called "s<batch>"."""
    fields: dict[str, typing.Any] = {
        "snapshot_id": f"s{batch}",
        "manifest_offset": 10 * batch + 5,
        "first_chunk_offset": 10 * batch,
        "batch": batch,
        "increment_offset": 3 * batch + 2,
        "digest": Digest(batch, 1, 2),
    }
    return Pointer(**(fields | changed))


def increment(batch: int, **changed: typing.Any) -> Increment:
    """An increment that applied nothing."""
    fields: dict[str, typing.Any] = {
        "origin": ORIGIN,
        "owner_epoch": 0,
        "batch": batch,
        "previous_offset": 3 * batch - 1 if batch else -1,
        "ranges": [],
        "positions": {"payments": 0, "refunds": 7},
        "record_count": 0,
        "skipped": [],
        "anchors": {},
        "pointers": [],
        "changes": None,
        "outputs": {},
        "stream_time_ms": -1,
        "digest": EMPTY,
        "genesis": GENESIS,
        "written_at_ms": 1_700_000_000_000,
    }
    return Increment(**(fields | changed))


def manifest(snapshot_id: str, chunks: list[ChunkRef], **changed: typing.Any) -> Manifest:
    """The manifest of an empty state's snapshot after batch 1."""
    fields: dict[str, typing.Any] = {
        "origin": ORIGIN,
        "snapshot_id": snapshot_id,
        "owner_epoch": 0,
        "batch": 1,
        "increment_offset": 5,
        "positions": {"payments": 0, "refunds": 7},
        "chunks": chunks,
        "entry_count": 0,
        "digest": EMPTY,
        "entries_digest": EMPTY,
        "stream_time_ms": -1,
        "shard_count": 1024,
        "created_at_ms": 1_700_000_000_000,
        "genesis": GENESIS,
    }
    return Manifest(**(fields | changed))


def entries_of(chunk: Chunk) -> dict[bytes, bytes]:
    return {key: value for part in chunk.slices for key, value in part.entries.items()}


def rewrapped(
    value: bytes,
    body: bytes | None = None,
    *,
    version: int | None = None,
    kind: int | None = None,
    compression: int | None = None,
) -> bytes:
    """The envelope of `value` with other contents and a right checksum, as a wrong or a newer program writes it."""
    body = value[HEADER_BYTES:] if body is None else body
    given = zip((version, kind, compression), value[4:7], strict=True)
    described = bytes(old if new is None else new for new, old in given) + value[7:8]
    return value[:4] + described + crc32(body, crc32(described)).to_bytes(4, "big") + body


def read_entry(value: bytes | None) -> typing.Any:
    """A record of ours; Any, as the test knows what it must be."""
    return decode(value or b"")


def read_chunk(value: bytes, ref: ChunkRef, snapshot_id: str, *, verify_sums: bool = False) -> Chunk:
    """Return in one piece the chunk that the manifest's `ref` names. Raises as `unpacking`."""
    body = open_chunk(value, ref, snapshot_id)
    found = [each for each in unpacking(body, ref, snapshot_id, verify_sums=verify_sums) if each]
    store = found[0][0] if found else DEFAULT_STORE
    return Chunk(snapshot_id, ref.sequence, store, [part for _, part in found])

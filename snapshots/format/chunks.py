"""Writes slices of a store's image as chunk records, and reads them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any
from zlib import crc32

import msgspec

from snapreplay.counted import counted
from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.changes import EntryTooLarge
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, RecordKind, enveloped, open_envelope
from snapreplay.snapshots.format.records import Chunk, ChunkRef
from snapreplay.state.contract import ShardSlice
from snapreplay.state.cursor import ENTRIES_MAX, split
from snapreplay.state.digest import BLOCK, DEFAULT_STORE, EMPTY, Digest, adding_up
from snapreplay.state.steps import Steps

RAW_BYTES_MAX = 4 * 1024 * 1024
"""Packed in one go under the interpreter's lock, then compressed in 5 ms without it (measured)."""
_WRITTEN_BYTES_MAX = RAW_BYTES_MAX + RECORD_BYTES_MAX + 10 * ENTRIES_MAX + 40 * 65_536
"""Of a body: its keys and values, one entry too many, the headers of each entry and of each slice."""
Chunking = Generator[Callable[[], bytes] | None, Any, list[bytes]]
"""Yields None after each step, or a function to call: send its result back. zstd and checksums release the GIL, so a
thread may run it."""

_AIM = 0.85  # of the record limit: the next slices may compress a little worse than the last ones


class ChunkWriter:
    """Numbers and encodes the chunks of one snapshot.

    It learns how well the state compresses, so that chunks stay just below the limit. It may run in
    a thread; one call at a time.
    """

    def __init__(self, snapshot_id: str, record_bytes_max: int = RECORD_BYTES_MAX) -> None:
        self._snapshot_id = snapshot_id
        self._record_bytes_max = record_bytes_max
        self._sequence = self._packed_bytes = 0
        self._raw_bytes = self._bounded(record_bytes_max * _AIM)

    @property
    def raw_bytes(self) -> int:
        """Key and value bytes to pass to the next `chunks`, so that it makes one chunk close to the limit."""
        return self._raw_bytes

    def chunks(self, slices: Sequence[ShardSlice], store: str = DEFAULT_STORE) -> Chunking:
        """Return the values of the next chunk, with slices of one store; of several chunks if the slices compress worse
        than those before.

        Raises:
            EntryTooLarge: a single entry does not fit into a chunk.
        """
        body = yield from self.packing(slices, store)
        value = yield partial(enveloped, RecordKind.CHUNK, body, compress=True)
        if len(value) <= self._record_bytes_max:
            self._sequence += 1
            self._learn(len(value))
            return [value]
        found: list[bytes] = []
        for half in self._halves(slices):
            found += yield from self.chunks(half, store)
        return found

    def packing(self, slices: Sequence[ShardSlice], store: str = DEFAULT_STORE) -> Steps[bytes]:
        """Return the body of the next chunk; each step packs a slice."""
        packed: list[msgspec.Raw] = []
        self._packed_bytes = 0
        for part in slices:
            packed.append(msgspec.Raw(_encode(part)))
            entries = part.entries
            self._packed_bytes += sum(map(len, entries)) + sum(map(len, entries.values()))
            yield
        return _encode(_Sliced(self._snapshot_id, self._sequence, store, packed))

    def _learn(self, size_bytes: int) -> None:
        """Shrink at once, grow at most twofold: an unusually small chunk says little about the next one."""
        fitting = self._packed_bytes * self._record_bytes_max * _AIM / size_bytes
        self._raw_bytes = self._bounded(min(fitting, 2 * self._raw_bytes))

    def _bounded(self, raw_bytes: float) -> int:
        return max(1, min(int(raw_bytes), RAW_BYTES_MAX))

    def _halves(self, slices: Sequence[ShardSlice]) -> tuple[Sequence[ShardSlice], Sequence[ShardSlice]]:
        if len(slices) > 1:
            middle = len(slices) // 2
            return slices[:middle], slices[middle:]
        try:
            first, second = split(slices[0])
        except ValueError as error:
            raise EntryTooLarge(
                f"one entry is larger than a chunk of {self._record_bytes_max} bytes: {error}",
                hint="keep less under one key: split the value over several keys",
            ) from error
        return [first], [second]


def open_chunk(value: bytes, ref: ChunkRef, snapshot_id: str) -> bytes:
    """Return the body of the chunk that the manifest's `ref` names.

    Checksum and zstd release the interpreter's lock, so a thread may do it.

    Raises:
        DamagedError: size, checksum or kind is not what was written.
        UnknownFormatError: a newer version wrote it.
    """
    where = _name(ref, snapshot_id)
    _check_bytes(value, ref, where)
    kind, body = open_envelope(value)
    if kind is not RecordKind.CHUNK:
        raise DamagedError(f"{where} is not a chunk but a {kind.name.lower()}")
    return body


def unpacking(
    body: bytes, ref: ChunkRef, snapshot_id: str, *, verify_sums: bool = False, short_steps: bool = False
) -> Iterator[tuple[str, ShardSlice] | None]:
    """Yield the slices of a chunk with their store, each decoded in a step of its own; None after a step without one.

    `verify_sums`: hash every entry again and compare with the slices' own sums: about 0.15 µs per entry. Without it
    the caller adds up the sums and compares them with the manifest. `short_steps`: refuse a slice with more entries
    than any writer puts into one.

    Raises:
        DamagedError: structure, snapshot or sequence is not what was written.
    """
    where = _name(ref, snapshot_id)
    try:
        chunk = _decode_sliced(body)
        _check_place(chunk, ref, snapshot_id, where)
        for packed in chunk.slices:
            yield None
            if short_steps:
                _check_size(packed, where)
            part = _decode_slice(packed)
            if verify_sums:
                yield from _verifying(part, where)
            yield chunk.store, part
    except (ValueError, RecursionError) as error:  # as in `decode`
        raise DamagedError(f"{where} does not read back: {error}") from error


def reading_back(
    body: bytes, ref: ChunkRef, snapshot_id: str, shard_count: int | None = None
) -> Steps[tuple[str, Digest]]:
    """Return the store of a chunk and the digest of its entries, each hashed again; each step decodes a slice.

    `shard_count`: also check that each key lies in its shard. In another one no restored map would find it.

    Raises:
        DamagedError: as `unpacking` with `verify_sums`; or it holds more than any writer puts into a chunk or a slice,
            which would be a long step.
    """
    store, total = DEFAULT_STORE, EMPTY
    where = _name(ref, snapshot_id)
    if len(body) > _WRITTEN_BYTES_MAX:
        raise DamagedError(f"{where} has a body of {len(body)} bytes, but a writer packs at most {_WRITTEN_BYTES_MAX}")
    for found in unpacking(body, ref, snapshot_id, verify_sums=True, short_steps=True):
        if found is not None:
            store, part = found
            total = total.plus(sums_of(part))
            if shard_count is not None:
                yield from _placed(part, shard_count, where)
        yield
    return store, total


def sums_of(part: ShardSlice) -> Digest:
    """Take the sums that the slice itself says."""
    return Digest(len(part.entries), part.digest_a, part.digest_b)


class _Sliced(msgspec.Struct, frozen=True):
    """A `Chunk` whose slices are still packed."""

    snapshot_id: str
    sequence: int
    store: str
    slices: list[msgspec.Raw]


class _PackedSlice(msgspec.Struct, frozen=True, array_like=True):
    """A `ShardSlice` whose entries are still packed."""

    index: int
    digest_a: int
    digest_b: int
    entries: msgspec.Raw


_encode = msgspec.msgpack.Encoder().encode
_decode_packed = msgspec.msgpack.Decoder(_PackedSlice).decode
_decode_sliced = msgspec.msgpack.Decoder(_Sliced).decode
_decode_slice = msgspec.msgpack.Decoder(ShardSlice).decode


def _name(ref: ChunkRef, snapshot_id: str) -> str:
    return f"chunk {ref.sequence} of snapshot {snapshot_id} (offset {ref.offset})"


def _check_bytes(value: bytes, ref: ChunkRef, where: str) -> None:
    if (len(value), crc32(value)) != (ref.size_bytes, ref.crc32):
        raise DamagedError(
            f"{where} has {len(value)} bytes with crc32 {crc32(value):08x},"
            f" but its manifest says {ref.size_bytes} with {ref.crc32:08x}"
        )


def _check_place(chunk: Chunk | _Sliced, ref: ChunkRef, snapshot_id: str, where: str) -> None:
    if (chunk.snapshot_id, chunk.sequence) != (snapshot_id, ref.sequence):
        raise DamagedError(f"{where} says it is chunk {chunk.sequence} of {chunk.snapshot_id}")


def _check_size(packed: msgspec.Raw, where: str) -> None:
    count = _map_size(bytes(memoryview(_decode_packed(packed).entries)[:5]))
    if count > ENTRIES_MAX:
        raise DamagedError(
            f"{where} has a slice of {counted(count, 'entry')}, but a writer packs at most {ENTRIES_MAX}"
        )


def _map_size(packed: bytes) -> int:
    lengths = {0xDE: 2, 0xDF: 4}
    if packed[0] in lengths:
        return int.from_bytes(packed[1 : 1 + lengths[packed[0]]], "big")
    return packed[0] & 0x0F


def _placed(part: ShardSlice, shard_count: int, where: str) -> Steps[None]:
    index, mask, keys = part.index, shard_count - 1, iter(part.entries)
    if not 0 <= index <= mask:
        raise DamagedError(f"{where} has a slice of shard {index} of {shard_count}")
    while block := list(islice(keys, BLOCK)):
        if any(crc32(key) & mask != index for key in block):
            raise DamagedError(f"{where} has a key in shard {index} of {shard_count} that belongs to another shard")
        yield


def _verifying(part: ShardSlice, where: str) -> Steps[None]:
    computed = yield from adding_up(part.entries.items())
    if (computed.a, computed.b) != (part.digest_a, part.digest_b):
        raise DamagedError(
            f"{where}: the entries of shard {part.index} add up to"
            f" {computed.a:016x}:{computed.b:016x},"
            f" but the chunk says {part.digest_a:016x}:{part.digest_b:016x}"
        )

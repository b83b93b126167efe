"""Slices of a store as chunks that fit, and back with every check."""

import os
import random
from dataclasses import dataclass
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay.errors import DamagedError
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.snapshots.format.chunks import RAW_BYTES_MAX, ChunkWriter, open_chunk, reading_back, unpacking
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, body_of, encode
from snapreplay.snapshots.format.records import Chunk, ChunkRef
from snapreplay.state.contract import ShardSlice
from snapreplay.state.cursor import ENTRIES_MAX, SLICE_ENTRIES_MAX, ShardCursor
from snapreplay.state.digest import MASK, Digest, digest_of
from snapreplay.state.steps import all_of
from tests.support.entries import manifest, read_chunk


def slice_of(index: int, entries: dict[bytes, bytes]) -> ShardSlice:
    """A slice with its right sums."""
    digest = digest_of(entries.items())
    return ShardSlice(index, digest.a, digest.b, entries)


def ref_of(value: bytes, sequence: int) -> ChunkRef:
    """Return what a manifest would say of this record."""
    return ChunkRef(100 + sequence, sequence, len(value), crc32(value))


@dataclass
class Image:
    """An image that gives slices as a store's cursor does."""

    slices: list[ShardSlice]

    def take(self, raw_bytes_max: int) -> list[ShardSlice]:
        taken: list[ShardSlice] = []
        while self.slices and (not taken or raw_bytes_max > 0):
            raw_bytes_max -= sum(len(k) + len(v) for k, v in self.slices[0].entries.items())
            taken.append(self.slices.pop(0))
        return taken


async def written(writer: ChunkWriter, image: Image) -> list[bytes]:
    values: list[bytes] = []
    while slices := image.take(writer.raw_bytes):
        values += await run_cooperatively(writer.chunks(slices))
    return values


def regular(shards: int, entries: int) -> Image:
    """A state that compresses to about a third; always the same."""
    numbers = random.Random(11)
    keys = [(s, n) for s in range(shards) for n in range(entries)]
    values = {key: b"\x81\xa7balance\xce" + numbers.randbytes(3) for key in keys}
    return Image(
        [slice_of(s, {b"account-%d-%d" % (s, n): values[s, n] for n in range(entries)}) for s in range(shards)]
    )


@settings(max_examples=50)
@given(
    st.lists(st.dictionaries(st.binary(max_size=30), st.binary(max_size=400), max_size=20), max_size=8),
    st.integers(600, 4000),
)
async def test_chunks_hold_exactly_the_image(shards, record_bytes_max) -> None:
    """Numbered without a gap, none too large, every entry once, the sums exact even in split slices."""
    image = Image([slice_of(index, entries) for index, entries in enumerate(shards)])
    values = await written(ChunkWriter("s1", record_bytes_max), image)
    assert all(len(value) <= record_bytes_max for value in values)
    chunks = [read_chunk(value, ref_of(value, n), "s1", verify_sums=True) for n, value in enumerate(values)]
    for index, entries in enumerate(shards):
        parts = [part for chunk in chunks for part in chunk.slices if part.index == index]
        found = [item for part in parts for item in part.entries.items()]
        digest = digest_of(entries.items())
        assert found == list(entries.items())
        assert sum(part.digest_a for part in parts) & MASK == digest.a
        assert sum(part.digest_b for part in parts) & MASK == digest.b
    for n, value in enumerate(values):
        entries = [item for part in chunks[n].slices for item in part.entries.items()]
        assert sums_of(value, ref_of(value, n), "s1") == digest_of(entries)


async def test_the_writer_learns_how_well_the_state_compresses() -> None:
    """After a few chunks one call gives one chunk that is nearly full, from several times its bytes."""
    writer = ChunkWriter("s1", 50_000)
    values = await written(writer, regular(shards=1000, entries=100))
    assert writer.raw_bytes > 2 * 50_000
    middle = values[len(values) // 2 : -1]
    assert all(0.6 * 50_000 < len(value) <= 50_000 for value in middle)


async def test_small_entries_fill_chunks() -> None:
    """However few bytes an entry has, a chunk is near its limit, and no step packs more than a slice may hold."""
    shard = {b"%07d" % n: b"%04d" % (n * n % 9973) for n in range(200_000)}
    cursor = ShardCursor([shard], digest_of(shard.items()))
    writer = ChunkWriter("s1", record_bytes_max=300_000)
    values: list[bytes] = []
    while slices := all_of(cursor.slicing(writer.raw_bytes)):
        assert max(len(part.entries) for part in slices) <= SLICE_ENTRIES_MAX
        values += await run_cooperatively(writer.chunks(slices))
    assert min(map(len, values[2:-1])) > 0.6 * 300_000  # the first ones learn


def test_a_body_packed_in_steps_is_that_of_the_chunk() -> None:
    """Byte for byte, as a reader of the format expects it."""
    slices = [slice_of(1, {b"k": b"v"}), slice_of(2, {})]
    packed = all_of(ChunkWriter("s1").packing(slices, "a store"))
    assert packed == body_of(Chunk("s1", 0, "a store", slices))


async def test_a_state_that_stops_compressing_still_fits() -> None:
    """Random values behind regular ones: the first of them are split, then the writer has learnt."""
    writer = ChunkWriter("s1", 50_000)
    await written(writer, regular(shards=1000, entries=100))
    learnt = writer.raw_bytes
    worse = [slice_of(n, {b"%d" % n: os.urandom(4000)}) for n in range(200)]
    values = await written(writer, Image(worse))
    assert all(len(value) <= 50_000 for value in values)
    assert writer.raw_bytes < learnt / 2
    assert len(values) < 1.6 * 200 * 4000 / 50_000


async def test_a_call_never_asks_for_more_than_its_bound() -> None:
    """However well the state compresses, 4 MiB are packed at most: it takes milliseconds."""
    writer = ChunkWriter("s1")
    zeros = [slice_of(n, {b"%d" % n: bytes(100_000)}) for n in range(300)]
    values = await written(writer, Image(zeros))
    assert writer.raw_bytes == RAW_BYTES_MAX
    assert all(len(value) <= RECORD_BYTES_MAX for value in values)


def seal(chunk: Chunk) -> tuple[bytes, ChunkRef]:
    """A chunk with the reference that fits its bytes and its number."""
    value = encode(chunk)
    return value, ref_of(value, chunk.sequence)


GOOD = Chunk("s1", 2, "default", [slice_of(0, {b"a": b"1", b"b": b"2"}), slice_of(1, {})])


@pytest.mark.parametrize("fault", ["flipped", "shorter", "empty", "other", "snapshot", "sequence", "kind"])
def test_another_record_than_the_manifest_names_is_refused(fault) -> None:
    """Size and checksum of the whole value, then snapshot, number and kind."""
    value, ref = seal(GOOD)
    flipped = value[:20] + bytes([value[20] ^ 1]) + value[21:]
    wrong = encode(manifest("s1", []))
    faults = {
        "flipped": (flipped, ref, "s1"),
        "shorter": (value[:-1], ref, "s1"),
        "empty": (b"", ref, "s1"),
        "other": (encode(Chunk("s1", 2, "default", [])), ref, "s1"),
        "snapshot": (value, ref, "s2"),
        "sequence": (value, msgspec.structs.replace(ref, sequence=3), "s1"),
        "kind": (wrong, ChunkRef(0, 2, len(wrong), crc32(wrong)), "s1"),
    }
    with pytest.raises(DamagedError, match="snapshot s"):
        read_chunk(*faults[fault])
    with pytest.raises(DamagedError, match="snapshot s"):
        sums_of(*faults[fault])


def test_wrong_sums_are_found_when_asked_for() -> None:
    """Sums that do not belong to the entries pass a restore's quick look, and never an audit's."""
    lying = Chunk("s1", 2, "default", [ShardSlice(0, 1, 2, {b"a": b"1"})])
    value, ref = seal(lying)
    assert read_chunk(value, ref, "s1") == lying
    with pytest.raises(DamagedError, match="shard 0"):
        read_chunk(value, ref, "s1", verify_sums=True)
    with pytest.raises(DamagedError, match="shard 0"):
        sums_of(value, ref, "s1")


def test_a_key_in_another_shard_is_noticed_where_it_is_asked_for():
    """A restored map would not find it there. Among many keys it is any of them."""
    keys = [b"k%d" % n for n in range(3000)]
    mine = {key: b"v" for key in keys if crc32(key) & 1 == 0}
    for wrong in ({}, {next(key for key in keys if crc32(key) & 1): b"v"}):
        part, total = slice_of(0, {**mine, **wrong}), digest_of({**mine, **wrong}.items())
        value, ref = seal(Chunk("s1", 0, "default", [part]))
        body = open_chunk(value, ref, "s1")
        assert all_of(reading_back(body, ref, "s1")) == ("default", total)
        if wrong:
            with pytest.raises(DamagedError, match="belongs to another shard"):
                all_of(reading_back(body, ref, "s1", shard_count=2))
        else:
            assert all_of(reading_back(body, ref, "s1", shard_count=2)) == ("default", total)


def test_more_than_a_writer_packs_is_refused_before_it_is_decoded():
    """It would be one long step of a running owner. A restore reads it as ever: it has no others to wait for it."""
    many = {b"%d" % n: b"" for n in range(ENTRIES_MAX + 1)}
    long = {b"k": bytes(10 * 1024 * 1024)}
    for entries, says in ((many, "131,073 entries"), (long, "a body of 10485")):
        value, ref = seal(Chunk("s1", 0, "default", [slice_of(0, entries)]))
        body = open_chunk(value, ref, "s1")
        with pytest.raises(DamagedError, match=says):
            all_of(reading_back(body, ref, "s1"))
        assert [found for found in unpacking(body, ref, "s1", verify_sums=True) if found]
    del many[b"0"]
    value, ref = seal(Chunk("s1", 0, "default", [slice_of(0, many)]))
    assert sums_of(value, ref, "s1").count == ENTRIES_MAX


def sums_of(value: bytes, ref: ChunkRef, snapshot_id: str) -> Digest:
    """Return what the entries add up to."""
    _, digest = all_of(reading_back(open_chunk(value, ref, snapshot_id), ref, snapshot_id))
    return digest

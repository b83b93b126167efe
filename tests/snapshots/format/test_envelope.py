"""The envelope: what goes in comes out, and anything else is one of two errors."""

import os
import struct
from zlib import crc32

import msgspec
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.format.envelope import (
    BODY_BYTES_MAX,
    KINDS,
    RECORD_BYTES_MAX,
    RecordKind,
    RecordTooLarge,
    decode,
    encode,
    headers_of,
    kind_of,
)
from snapreplay.snapshots.format.records import ChangesRecord, ChunkRef, Claim, LogEntry
from tests.support.entries import entries, increment, manifest

CLAIM = Claim("c1", "ledger", "cluster-1", "p1", "i1", "host-1", 4711, 1_700_000_000_000)


def sealed(body: bytes, version: int = 1, kind: int = 1, compression: int = 0, rest: int = 0) -> bytes:
    """A record with a correct checksum and any content."""
    described = bytes((version, kind, compression, rest))
    return b"SNRP" + described + struct.pack(">I", crc32(described + body)) + body


@given(entries(), st.booleans())
def test_what_was_encoded_is_decoded(entry: LogEntry, compress: bool) -> None:
    """Every record of every kind survives the round trip, compressed or not."""
    value = encode(entry, compress=compress)
    assert decode(value) == entry
    assert kind_of(value) is KINDS[type(entry)]


@given(st.binary(max_size=300))
@example(b"SNRP")
@example(sealed(b""))
@example(sealed(b"\x81\xa8claim_id\xdd\xff\xff\xff\xff"))
@example(sealed(b"\x81\xa3new" + b"\x91" * 200_000))
@example(sealed(b"\x81\xa8claim_id\xa2\xff\xff"))
@example(sealed(b"\xdf\xff\xff\xff\xff"))
@example(sealed(b"not a zstd frame", compression=1))
def test_any_bytes_give_a_declared_error(value: bytes) -> None:
    """Bytes that are no record are refused as damaged, never with another exception."""
    with pytest.raises(DamagedError):
        decode(value)


@given(st.binary(max_size=200), st.integers(1, 5), st.integers(0, 1))
@settings(max_examples=100)
def test_any_sealed_body_gives_a_record_or_a_declared_error(body: bytes, kind: int, compression: int) -> None:
    """A wrong body behind a right checksum is damage too."""
    try:
        entry = decode(sealed(body, kind=kind, compression=compression))
    except DamagedError:
        return
    assert KINDS[type(entry)] == kind


@given(entries(), st.data())
@settings(max_examples=100)
def test_every_flipped_byte_is_noticed(entry: LogEntry, data: st.DataObject) -> None:
    """There is no byte that may change: magic is compared, the checksum covers the rest."""
    value = bytearray(encode(entry, compress=data.draw(st.booleans())))
    position = data.draw(st.integers(0, len(value) - 1))
    value[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedError):
        decode(bytes(value))


@given(entries(), st.data())
def test_every_truncation_is_noticed(entry: LogEntry, data: st.DataObject) -> None:
    """No prefix of a record is a record, and nothing may be appended to one."""
    value = encode(entry)
    with pytest.raises(DamagedError):
        decode(value[: data.draw(st.integers(0, len(value) - 1))])
    with pytest.raises(DamagedError):
        decode(value + b"\x00")


@pytest.mark.parametrize(
    ("strange", "named"),
    [
        ({"version": 2}, "format version 2, but this build knows only 1"),
        ({"version": 0}, "format version 0"),
        ({"kind": 6}, "record kind 6, but this build knows only 1 claim, 2 changes"),
        ({"compression": 2}, "compression 2, but this build knows only 0 none, 1 zstd"),
        ({"rest": 1}, "reserved byte 1, but this build knows only 0"),
    ],
)
def test_intact_records_of_a_newer_version_are_refused_by_name(strange, named) -> None:
    """Intact bytes that this build does not know are a newer version, and both sides are named."""
    with pytest.raises(UnknownFormatError) as caught:
        decode(sealed(b"\x80", **strange))
    assert named in caught.value.message
    assert "install" in caught.value.hint


def test_fields_of_a_later_version_are_ignored() -> None:
    """A map with one more field, and an array with one more element, are still read."""
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(CLAIM)) | {"later": {"a": [1, b"x"]}}
    assert decode(sealed(msgspec.msgpack.encode(body))) == CLAIM
    parts = manifest("s1", [ChunkRef(1, 0, 10, 11)])
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(parts))
    body["chunks"][0].append("later")
    assert decode(sealed(msgspec.msgpack.encode(body), kind=5)) == parts


def test_absent_optional_fields_have_their_defaults() -> None:
    """What an older writer did not know reads as what it meant."""
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(increment(3)))
    optional = {"fallback_from", "decision", "last_decision_offset"}
    assert not optional & set(body), "our own writer leaves them out"
    assert decode(sealed(msgspec.msgpack.encode(body), kind=3)) == increment(3)
    spoken = body | {"fallback_from": None, "decision": None}
    assert decode(sealed(msgspec.msgpack.encode(spoken), kind=3)) == increment(3)


def compressed(body: bytes, *, sized: bool = True) -> bytes:
    frame = zstandard.ZstdCompressor(write_content_size=sized).compress(body)
    return sealed(frame, kind=4, compression=1)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (compressed(bytes(BODY_BYTES_MAX + 1)), str(BODY_BYTES_MAX)),
        (compressed(b"x" * 1000, sized=False), None),
        (sealed(bytes(BODY_BYTES_MAX + 1)), "but at most 16777216 are allowed"),
    ],
    ids=["decompressed", "of unknown size", "plain"],
)
def test_a_record_cannot_exhaust_the_memory(value: bytes, says: str | None) -> None:
    """A body beyond the limit is refused, a compressed one by its frame header, before it is decompressed."""
    with pytest.raises(DamagedError, match=says):
        decode(value)


def test_compression_is_used_where_it_pays() -> None:
    """Large and regular: compressed; small or random: as it is."""
    regular = ChangesRecord(1, 0, {"default": {b"%d" % n: b"value" * 9 for n in range(1000)}})
    random = ChangesRecord(1, 0, {"default": {b"k": os.urandom(50_000)}})
    small = ChangesRecord(1, 0, {"default": {b"k": b"v" * 100}})
    assert len(encode(regular, compress=True)) < len(encode(regular)) / 4
    assert encode(random, compress=True) == encode(random)
    assert encode(small, compress=True) == encode(small)


def test_a_record_that_cannot_be_split_is_refused_before_it_is_sent() -> None:
    """A manifest of too many chunks is refused by name; changes and chunks are their writers' affair."""
    refs = [ChunkRef(10**9 + n, n, 899_999, 2**32 - 1) for n in range(50_000)]
    with pytest.raises(RecordTooLarge, match="manifest"):
        encode(manifest("s1", refs))
    assert len(encode(ChangesRecord(1, 0, {"default": {b"k": bytes(10**6)}}))) > RECORD_BYTES_MAX


def test_kind_of_peeks_without_judging() -> None:
    """Only magic and kind are looked at; what is foreign has no kind."""
    damaged = encode(CLAIM)[:-1] + b"\x00"
    assert kind_of(damaged) is RecordKind.CLAIM
    assert kind_of(b"") is None
    assert kind_of(b"SNRQ" + damaged[4:]) is None
    assert kind_of(b"SNRP\x01\x09" + damaged[6:]) is None


def test_headers_name_kind_format_and_snapshot() -> None:
    """Enough for a person with a console consumer, and no more."""
    common = (("snapreplay.kind", b"manifest"), ("snapreplay.format", b"1"))
    assert headers_of(manifest("s1", [])) == (*common, ("snapreplay.snapshot", b"s1"))
    assert headers_of(CLAIM) == (("snapreplay.kind", b"claim"), common[1])

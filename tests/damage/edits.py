"""The edits of records in a topic: of their bytes, and of their order. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import zstandard

from snapreplay.snapshots.format.envelope import BODY_BYTES_MAX, HEADER_BYTES, RecordKind, kind_of
from tests.support.entries import rewrapped


@dataclass
class Slot:
    """A record at its offset; to be changed in place."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Slots = list[Slot]
Edit = Callable[[Slots], None]
Change = Callable[[bytes], bytes | None]

REGIONS = {
    "magic": 0,
    "format version": 4,
    "kind": 5,
    "compression": 6,
    "reserved byte": 7,
    "checksum": 8,
    "first byte of the body": HEADER_BYTES,
    "last byte of the body": -1,
}


def of_kind(slots: Slots, kind: RecordKind) -> Slots:
    """Return those of a kind in order, as long as nothing is damaged yet."""
    return [slot for slot in slots if kind_of(slot.value or b"") is kind]


# ------------------------------------------------------------------------- bytes of one value


def flips() -> Iterator[Change]:
    """One bit in each region, and in the middle of the body."""
    for at in REGIONS.values():
        yield lambda value, at=at: _xor(value, at % len(value))  # type: ignore[misc]  # bound now
    yield lambda value: _xor(value, (HEADER_BYTES + len(value)) // 2)


def cuts() -> Iterator[Change]:
    """Yield changes that shorten, empty, or make longer."""
    yield lambda value: value[: len(value) // 2]
    yield lambda value: value[:HEADER_BYTES]
    yield lambda value: value[:3]
    yield lambda _: b""
    yield lambda _: None
    yield lambda value: value + b"\0"


def bombs() -> Iterator[Change]:
    """Right checksums around bodies that would fill the memory."""
    yield lambda value: rewrapped(value, _zstd(bytes(BODY_BYTES_MAX + 1)), compression=1)
    yield lambda value: rewrapped(value, _zstd(bytes(BODY_BYTES_MAX + 1), told=False), compression=1)
    yield lambda value: rewrapped(value, _claiming(2**62), compression=1)
    yield lambda value: rewrapped(value, b"\xdf\xff\xff\xff\xff", compression=0)  # map of 2^32-1
    yield lambda value: rewrapped(value, b"\xdd\xff\xff\xff\xff" * 1000, compression=0)  # arrays in it


def from_the_future() -> Iterator[Change]:
    """Intact records that only a newer build knows: version, kind, compression."""
    yield lambda value: rewrapped(value, version=2)
    yield lambda value: rewrapped(value, kind=99)
    yield lambda value: rewrapped(value, compression=2)


def _xor(value: bytes, at: int) -> bytes:
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


def _zstd(content: bytes, *, told: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=told).compress(content)


def _claiming(size_bytes: int) -> bytes:
    """A frame of nothing whose header promises this much: magic, descriptor (8-byte size, one segment), size."""
    return b"\x28\xb5\x2f\xfd\xe0" + size_bytes.to_bytes(8, "little")

"""Tuples as keys: encoded so that the order of the bytes is the order of the tuples. Pure.

docs/FORMAT.md has the bytes. The first byte is one that MessagePack never uses, so a reader needs no type to tell such
a key from another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Part = str | bytes | int

FIRST = b"\xc1"
_BYTES, _STR, _INT = 1, 2, 3
_MIDDLE = 1 << 63


def is_tuple_key(encoded: bytes) -> bool:
    """Whether this is a key of several parts."""
    return encoded.startswith(FIRST)


def tuple_packer(part_types: tuple[type, ...]) -> Callable[[Any], bytes]:
    """Returns the encoder of tuples with parts of exactly these types, which it does not check.

    It raises ValueError for a string that UTF-8 cannot hold, and OverflowError for an int beyond 64 bits, signed.
    """
    packers = [_PACKERS[each] for each in part_types]
    if len(packers) == 2:  # the most frequent case costs half as much
        pack_one, pack_other = packers

        def pack_pair(key: tuple[Any, Any]) -> bytes:
            one, other = key
            return b"\xc1%b%b" % (pack_one(one), pack_other(other))

        return pack_pair

    def pack(key: tuple[Any, ...]) -> bytes:
        return FIRST + b"".join([pack_part(part) for pack_part, part in zip(packers, key)])  # noqa: B905 - checked

    return pack


def tuple_unpacker(part_types: tuple[type, ...]) -> Callable[[bytes], Any]:
    """Returns the decoder of tuples with parts of exactly these types.

    It raises ValueError or IndexError for any other bytes.
    """
    readers = [_READERS[_TAGS[each]] for each in part_types]
    if len(readers) == 2:
        read_one, read_other = readers

        def unpack_pair(encoded: bytes) -> tuple[Part, Part]:
            one, at = read_one(encoded, 1)
            other, at = read_other(encoded, at)
            if at != len(encoded) or not is_tuple_key(encoded):
                raise ValueError("it is no key of two parts")
            return one, other

        return unpack_pair

    def unpack(encoded: bytes) -> tuple[Part, ...]:
        at, parts = 1, list[Part]()
        for read_part in readers:
            part, at = read_part(encoded, at)
            parts.append(part)
        if at != len(encoded) or not is_tuple_key(encoded):
            raise ValueError(f"it is no key of {len(readers)} parts")
        return tuple(parts)

    return unpack


def unpack_tuple(encoded: bytes) -> tuple[Part, ...]:
    """As `tuple_unpacker`, whatever the types are.

    Raises:
        ValueError: not what `tuple_packer` makes.
    """
    if not is_tuple_key(encoded):
        raise ValueError("it is no key of several parts")
    at, end, parts = 1, len(encoded), list[Part]()
    while at < end:
        read_part = _READERS.get(encoded[at])
        if read_part is None:
            raise ValueError(f"there is no part at byte {at}")
        part, at = read_part(encoded, at)
        parts.append(part)
    if not parts:
        raise ValueError("it has no part")
    return tuple(parts)


def behind_prefix(encoded: bytes) -> bytes:
    """Returns a bound between all keys that have the parts of this one as their first parts, and those that follow."""
    return encoded + b"\xff"  # larger than each tag; a zero byte and this one are a zero byte within a part


def _pack_bytes(part: bytes) -> bytes:
    return b"\x01%b\0" % part.replace(b"\0", b"\0\xff")


def _pack_str(part: str) -> bytes:
    return b"\x02%b\0" % part.encode().replace(b"\0", b"\0\xff")


def _pack_int(part: int) -> bytes:
    return b"\x03" + (part + _MIDDLE).to_bytes(8, "big")


def _read_bytes(encoded: bytes, at: int) -> tuple[bytes, int]:
    """Returns the part at this place, and the place behind it; so do the others."""
    if encoded[at] != _BYTES:
        raise ValueError(f"there are no bytes at byte {at}")
    stop = encoded.index(0, at + 1)
    if encoded.find(b"\xff", stop, stop + 2) < 0:
        return encoded[at + 1 : stop], stop + 1
    return _escaped(encoded, at + 1, stop)


def _read_str(encoded: bytes, at: int) -> tuple[str, int]:
    if encoded[at] != _STR:
        raise ValueError(f"there is no text at byte {at}")
    stop = encoded.index(0, at + 1)
    if encoded.find(b"\xff", stop, stop + 2) < 0:
        return encoded[at + 1 : stop].decode(), stop + 1
    raw, end = _escaped(encoded, at + 1, stop)
    return raw.decode(), end


def _read_int(encoded: bytes, at: int) -> tuple[int, int]:
    end = at + 9
    if encoded[at] != _INT or end > len(encoded):
        raise ValueError(f"there is no number at byte {at}")
    return int.from_bytes(encoded[at + 1 : end], "big") - _MIDDLE, end


def _escaped(encoded: bytes, start: int, stop: int) -> tuple[bytes, int]:
    while encoded[stop + 1 : stop + 2] == b"\xff":
        stop = encoded.index(0, stop + 2)
    return encoded[start:stop].replace(b"\0\xff", b"\0"), stop + 1


_TAGS: dict[type, int] = {bytes: _BYTES, str: _STR, int: _INT}
_PACKERS: dict[type, Callable[[Any], bytes]] = {bytes: _pack_bytes, str: _pack_str, int: _pack_int}
_READERS: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    _BYTES: _read_bytes,
    _STR: _read_str,
    _INT: _read_int,
}

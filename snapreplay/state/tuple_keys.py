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


def unpack_tuple(encoded: bytes) -> tuple[Part, ...]:
    """
    Raises:
        ValueError: not what `tuple_packer` makes.
    """
    if not is_tuple_key(encoded):
        raise ValueError("it is no key of several parts")
    parts: list[Part] = []
    at, end = 1, len(encoded)
    while at < end:
        tag = encoded[at]
        if tag == _INT and at + 9 <= end:
            parts.append(int.from_bytes(encoded[at + 1 : at + 9], "big") - _MIDDLE)
            at += 9
        elif tag in (_BYTES, _STR):
            stop = encoded.index(0, at + 1)
            while encoded[stop + 1 : stop + 2] == b"\xff":
                stop = encoded.index(0, stop + 2)
            raw = encoded[at + 1 : stop].replace(b"\0\xff", b"\0")
            parts.append(raw.decode() if tag == _STR else raw)
            at = stop + 1
        else:
            raise ValueError(f"there is no part at byte {at}")
    if not parts:
        raise ValueError("it has no part")
    return tuple(parts)


def _pack_bytes(part: bytes) -> bytes:
    return b"\x01%b\0" % part.replace(b"\0", b"\0\xff")


def _pack_str(part: str) -> bytes:
    return b"\x02%b\0" % part.encode().replace(b"\0", b"\0\xff")


def _pack_int(part: int) -> bytes:
    return b"\x03" + (part + _MIDDLE).to_bytes(8, "big")


_PACKERS: dict[type, Callable[[Any], bytes]] = {bytes: _pack_bytes, str: _pack_str, int: _pack_int}

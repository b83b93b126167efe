"""Tuples as keys: encoded so that the order of the bytes is the order of the tuples. Pure.

docs/FORMAT.md has the bytes. The first byte is one that MessagePack never uses, so a reader needs no type to tell such
a key from another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Part = str | bytes | int

FIRST = b"\xc1"
_FIRST = FIRST[0]
_BYTES, _STR, _INT = 1, 2, 3
_MIDDLE = 1 << 63


def is_tuple_key(encoded: bytes) -> bool:
    """Say whether this is a key of several parts."""
    return encoded.startswith(FIRST)


def tuple_packer(part_types: tuple[type, ...]) -> Callable[[Any], bytes]:
    """Return the encoder of tuples with parts of exactly these types, which it does not check.

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
        return FIRST + b"".join([pack_part(part) for pack_part, part in zip(packers, key)])  # noqa: B905 - as many

    return pack


def tuple_unpacker(part_types: tuple[type, ...], otherwise: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return the decoder of tuples with parts of exactly these types: `otherwise`, or a faster one that calls it for
    what is not as simple."""
    decode = otherwise
    if len(part_types) == 2 and part_types[0] is not int:
        decode = _pair_unpacker(part_types, otherwise)
    return _with_memory(decode) if len(part_types) > 1 and part_types[-1] is int else decode


def _with_memory(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return the same decoder, of keys that end with an int. It remembers the parts before it of the last key: those
    of a range often have the same ones, and then it takes half of the time."""
    # One object, so that another thread never sees the head of one key and the parts of another.
    known: tuple[bytes | None, tuple[Any, ...]] = (None, ())

    def unpack(encoded: bytes) -> Any:
        nonlocal known
        head = encoded[:-8]
        known_head, known_parts = known
        if head == known_head:
            return *known_parts, int.from_bytes(encoded[-8:]) - _MIDDLE
        key = decode(encoded)
        known = head, key[:-1]
        return key

    return unpack


def _pair_unpacker(part_types: tuple[type, ...], otherwise: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a decoder of pairs that begin with a text or bytes, which takes a quarter of the time. It calls
    `otherwise` for a zero byte in a part, and for other bytes."""
    one, other = (_TAGS[each] for each in part_types)

    def unpack_with_int(encoded: bytes) -> Any:
        stop = len(encoded) - 10
        part = encoded[2:stop]
        try:
            if 0 in part or encoded[1] != one or encoded[stop] or encoded[stop + 1] != _INT:
                return otherwise(encoded)
            number = int.from_bytes(encoded[stop + 2 :]) - _MIDDLE
            if encoded[0] == _FIRST and stop > 1:
                return part.decode() if one == _STR else part, number
        except (IndexError, UnicodeDecodeError):
            pass
        return otherwise(encoded)

    known: tuple[bytes, Any] = (b"", None)  # as above
    is_text, other_is_text = one == _STR, other == _STR

    def unpack_two(encoded: bytes) -> Any:
        nonlocal known
        end = len(encoded) - 1
        head, part = known
        try:
            if not head or not encoded.startswith(head):
                stop = encoded.find(0, 2)
                if encoded[0] != _FIRST or encoded[1] != one or encoded[stop + 1] != other:
                    return otherwise(encoded)
                head, raw = encoded[: stop + 2], encoded[2:stop]
                part = raw.decode() if is_text else raw
                known = head, part
            second = encoded[len(head) : end]
            if 0 in second or encoded[end] or end < len(head):
                return otherwise(encoded)
            return part, second.decode() if other_is_text else second
        except (IndexError, UnicodeDecodeError):
            return otherwise(encoded)

    return unpack_with_int if other == _INT else unpack_two


def unpack_tuple(encoded: bytes) -> tuple[Part, ...]:
    """Unpack a key, or raise ValueError: not what `tuple_packer` makes."""
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


def behind_prefix(encoded: bytes) -> bytes:
    """Return a bound behind all keys of which the first parts are these, and before those that follow."""
    # Larger than the first byte of any part. A part that goes on with a zero byte has the same two bytes and then more.
    return encoded + b"\xff"


_TAGS: dict[type, int] = {bytes: _BYTES, str: _STR, int: _INT}
_PACKERS: dict[type, Callable[[Any], bytes]] = {
    bytes: lambda part: b"\x01%b\0" % part.replace(b"\0", b"\0\xff"),
    str: lambda part: b"\x02%b\0" % part.encode().replace(b"\0", b"\0\xff"),
    int: lambda part: b"\x03" + (part + _MIDDLE).to_bytes(8, "big"),
}

"""Converts keys and values to bytes and back. Pure.

A codec accepts a null key or value (a tombstone) only if it says so: `nullable(utf8)`,
`json(Payment | None)`, or `json()` and `msgpack()`, which accept anything.

Encoding is canonical: dicts and sets are written sorted. A dict that was made in this batch and the
same dict read back from the state may differ in order, and outputs must not depend on batch
boundaries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

from snapreplay.errors import UsageError
from snapreplay.state.values import unsupported_type

T = TypeVar("T")

_INT64 = struct.Struct(">q")


@dataclass(frozen=True, eq=False)
class Codec(Generic[T]):
    """How one type is encoded and decoded.

    Attributes:
        name: for error messages, such as "json(Payment)".
        decode: converts bytes, never null, to a value; any exception means that it cannot.
        encode: converts a value, never None, to bytes; any exception means that it cannot.
        nullable: None stands for a null key or value.
    """

    name: str
    decode: Callable[[bytes], T]
    encode: Callable[[T], bytes]
    nullable: bool = False


def _same_bytes(data: bytes) -> bytes:
    if type(data) is not bytes:
        raise TypeError(f"expected bytes, got {type(data).__name__}")
    return data


def _decode_int64(data: bytes) -> int:
    value: int = _INT64.unpack(data)[0]
    return value


def _encode_int64(value: int) -> bytes:
    if type(value) is not int:
        raise TypeError(f"expected int, got {type(value).__name__}")
    return _INT64.pack(value)


raw: Codec[bytes] = Codec("raw", _same_bytes, _same_bytes)
"""Bytes as they are."""

utf8: Codec[str] = Codec("utf8", bytes.decode, str.encode)
"""Text, strictly UTF-8. Kafka's StringSerializer writes the same."""

i64: Codec[int] = Codec("i64", _decode_int64, _encode_int64)
"""Eight bytes, big-endian, signed. Kafka's LongSerializer writes the same."""


def nullable(codec: Codec[T]) -> Codec[T | None]:
    """`codec`, with None for a null key or value."""
    named = replace(codec, name=f"nullable({codec.name})", nullable=True)
    return cast(Codec[T | None], named)  # `nullable` keeps None from its functions


@overload
def json() -> Codec[Any]: ...
@overload
def json(type_: type[T], /) -> Codec[T]: ...
@overload
def json(type_: object, /) -> Codec[Any]: ...
def json(type_: Any = Any, /) -> Codec[Any]:
    """JSON of any type msgspec knows: Struct, dataclass, TypedDict, dict[str, int], a union of
    Structs, ...

    Without a type: dict, list, str, int, float, bool, None. Type checkers infer unions as Any:
    write `nullable(json(Payment))` where `json(Payment | None)` is meant.

    Raises:
        UsageError: msgspec cannot decode this type, such as a union of Structs without tags.
    """
    return _codec("json", type_, msgspec.json)


@overload
def msgpack() -> Codec[Any]: ...
@overload
def msgpack(type_: type[T], /) -> Codec[T]: ...
@overload
def msgpack(type_: object, /) -> Codec[Any]: ...
def msgpack(type_: Any = Any, /) -> Codec[Any]:
    """MessagePack of any type msgspec knows; as `json`.

    A length beyond the end of the bytes is refused before anything is allocated for it.

    Raises:
        UsageError: as `json`.
    """
    return _codec("msgpack", type_, msgspec.msgpack)


def _codec(kind: str, type_: Any, module: Any) -> Codec[Any]:
    name = f"{kind}({_type_name(type_)})"
    try:
        decode: Callable[[bytes], Any] = module.Decoder(type_).decode
        takes_none = _takes_none(type_)
    except (TypeError, ValueError, NameError) as error:
        raise UsageError(
            f"{name} cannot be decoded: {error}", hint=unsupported_type(type_)
        ) from error
    encode = module.Encoder(order="deterministic").encode
    return Codec(name, decode, encode, nullable=takes_none)


def _takes_none(type_: object) -> bool:
    try:
        msgspec.convert(None, type_)
    except msgspec.ValidationError:
        return False
    return True


def _type_name(type_: object) -> str:
    return type_.__name__ if isinstance(type_, type) else str(type_).removeprefix("typing.")

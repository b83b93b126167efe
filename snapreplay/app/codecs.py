"""Converts keys and values to bytes and back. Pure.

A codec accepts a null key or value (a tombstone) only if it says so: `nullable(utf8)`,
`json(Payment | None)`, or `json()` and `msgpack()`, which accept anything.

Encoding is canonical: dicts and sets are written sorted, so equal values are equal bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from json import JSONEncoder
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, overload

import msgspec
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.state.read_back import LEVELS_MAX, nested_deeper
from snapreplay.state.round_trip import parts_in, unwritable
from snapreplay.state.steady import unsteady_default
from snapreplay.state.values import unsupported_type

if TYPE_CHECKING:
    from snapreplay.registry.framing import TopicSchemas

T = TypeVar("T")

_SHOWN = 40
_BEGINNING = {*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF}  # of a map or an array in MessagePack
_NO_BEGINNING = bytes(each for each in range(256) if each not in _BEGINNING)
_encode_finite = JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True, eq=False)
class Codec(Generic[T]):
    """The encoding and decoding of one type.

    Attributes:
        name: for error messages, such as "json(Payment)".
        decode: converts bytes, never null, to a value; any exception means that it cannot.
        encode: converts a value, never None, to bytes; any exception means that it cannot.
        nullable: None stands for a null key or value.
        schemas: the schemas of a registry; None: the codec needs none.
    """

    name: str
    decode: Callable[[bytes], T]
    encode: Callable[[T], bytes]
    nullable: bool = False
    schemas: TopicSchemas | None = None


def _same_bytes(data: bytes) -> bytes:
    if type(data) is not bytes:
        raise TypeError(f"expected bytes, got {type(data).__name__}")
    return data


def _of_integers(name: str, form: struct.Struct) -> Codec[int]:
    def decode(data: bytes) -> int:
        value: int = form.unpack(data)[0]
        return value

    def encode(value: int) -> bytes:
        if type(value) is not int:
            raise TypeError(f"expected int, got {type(value).__name__}")
        return form.pack(value)

    return Codec(name, decode, encode)


def _decode_text(data: bytes) -> str:
    if 0 in data:  # most numbers of other serializers have one, and would be taken for text
        raise ValueError("text has no NUL (U+0000)")
    return data.decode()


def _encode_text(text: str) -> bytes:
    data = str.encode(text)
    if 0 in data:
        raise ValueError("text has no NUL (U+0000)")
    return data


raw: Codec[bytes] = Codec("raw", _same_bytes, _same_bytes)
"""Bytes as they are."""

utf8: Codec[str] = Codec("utf8", _decode_text, _encode_text)
"""Text, strictly UTF-8, without NUL (U+0000). Kafka's StringSerializer writes the same."""

i64 = _of_integers("i64", struct.Struct(">q"))
"""Eight bytes, big-endian, signed. Kafka's LongSerializer writes the same."""

i32 = _of_integers("i32", struct.Struct(">i"))
"""Four bytes, big-endian, signed. Kafka's IntegerSerializer writes the same."""


_SCALARS: dict[Any, tuple[str, type]] = {
    utf8.encode: ("utf8", str),
    i64.encode: ("i64", int),
    i32.encode: ("i32", int),
    raw.encode: ("raw", bytes),
}


class Unencoded(NamedTuple):
    """The reason why a codec does not encode a value: a sentence that begins with `name`, and what to do, perhaps
    empty."""

    why: str
    hint: str


def unencoded(name: str, codec: Codec[Any], value: object, cause: BaseException) -> Unencoded:
    """Say why `codec`, which raised `cause`, does not encode the value; `name` is "key" or "value"."""
    text = repr(value)
    text = f"{name} {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}"
    given = type(value).__name__
    if value is None:
        return Unencoded(
            f"{text} cannot be written as {codec.name}", f"declare the topic with {name}=nullable({codec.name})"
        )
    if codec.encode in _SCALARS and not isinstance(value, _SCALARS[codec.encode][1]):
        taken = _SCALARS[codec.encode][1].__name__
        fitting = [each for each, cls in _SCALARS.values() if cls is type(value)] or ["json()"]
        return Unencoded(
            f"{text} is {given}, which {codec.name} does not encode: it takes {taken}",
            f"pass a {taken}, or declare the topic with {name}={fitting[0]}",
        )
    found = unwritable(value, cause)
    if found is None:
        return Unencoded(
            f"{text} is {given}, which {codec.name} does not encode: {str(cause) or type(cause).__name__}", ""
        )
    why = f"{text} cannot be written as {codec.name}: {name}{found.path} {found.why}"
    return Unencoded(why, found.hint)


def nullable(codec: Codec[T]) -> Codec[T | None]:
    """Return a codec that also accepts None, for a null key or value."""
    named = replace(codec, name=f"nullable({codec.name})", nullable=True)
    return cast(Codec[T | None], named)  # `nullable` keeps None from its functions


@overload
def json() -> Codec[Any]: ...
@overload
def json(type_: type[T], /) -> Codec[T]: ...
@overload
def json(type_: object, /) -> Codec[Any]: ...
def json(type_: Any = Any, /) -> Codec[Any]:
    """Return a codec for JSON: for a Pydantic model, or for a type that msgspec supports, such as a Struct, a
    dataclass, a TypedDict, dict[str, int] or a union of Structs.

    Without a type: dict, list, str, int, float, bool, None. Type checkers infer Any for unions, so write
        `nullable(json(Payment))` instead of `json(Payment | None)`.

    Raises:
        UsageError: msgspec cannot decode this type, such as a union of Structs without tags.
    """
    return _codec_of_model(type_) if hasattr(type_, "model_validate_json") else _codec("json", type_, msgspec.json)


@overload
def msgpack() -> Codec[Any]: ...
@overload
def msgpack(type_: type[T], /) -> Codec[T]: ...
@overload
def msgpack(type_: object, /) -> Codec[Any]: ...
def msgpack(type_: Any = Any, /) -> Codec[Any]:
    """Return a codec for MessagePack, for any type that msgspec supports.

    Raises:
        UsageError: as `json`.
    """
    return _codec("msgpack", type_, msgspec.msgpack)


def _codec(kind: str, type_: Any, module: Any) -> Codec[Any]:
    name = type_.__name__ if isinstance(type_, type) else str(type_).removeprefix("typing.")
    name = f"{kind}({name})"
    try:
        decode: Callable[[bytes], Any] = module.Decoder(type_).decode
        takes_none = _takes_none(type_)
        unsteady = unsteady_default(inspect.type_info(type_))
    except (TypeError, ValueError, NameError) as error:
        raise UsageError(f"{name} cannot be decoded: {error}", hint=unsupported_type(type_)) from error
    if takes_none:
        decode = _untyped(decode, kind)
    encode = module.Encoder(order="deterministic").encode
    if unsteady is not None:
        decode = _decoding_twice(decode, encode, unsteady)
    if module is msgspec.json:
        encode = _refusing_non_finite(encode)
    return Codec(name, decode, encode, nullable=takes_none)


def _codec_of_model(model: Any) -> Codec[Any]:
    """Return the codec of a Pydantic model. It is written as msgspec writes it, because Pydantic does not sort sets."""
    as_json = _refusing_non_finite(msgspec.json.Encoder(order="deterministic").encode)
    decode: Callable[[bytes], Any] = model.model_validate_json

    def encode(value: Any) -> bytes:
        if not isinstance(value, model):
            raise TypeError(f"expected {model.__name__}, got {type(value).__name__}")
        return as_json(value.model_dump(by_alias=True))

    for name, field in model.model_fields.items():
        if field.default_factory not in (None, list, dict, set):
            decode = _decoding_twice(decode, encode, f"{name!r} of {model.__name__}")
            break
    return Codec(f"json({model.__name__})", decode, encode)


def _decoding_twice(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], field: str
) -> Callable[[bytes], Any]:
    """Refuse bytes without a field whose default differs at each call: a replay would get another value."""

    def decode_steadily(data: bytes) -> Any:
        value = decode(data)
        if encode(value) != encode(decode(data)):
            raise ValueError(
                f"it lacks a field whose default differs at each call, such as {field}: a replay would have another"
                " value"
            )
        return value

    return decode_steadily


def _untyped(decode: Callable[[bytes], Any], kind: str) -> Callable[[bytes], Any]:
    """Refuse bytes that hold a null: as None they could not be told from no bytes, a tombstone. Refuse what is nested
    so deep that it could be decoded in one place and not in another."""

    def decode_value(data: bytes) -> Any:
        value = decode(data)
        if value is None:
            raise ValueError("these bytes hold a null, and are none themselves")
        if len(data) > LEVELS_MAX and _may_be_deep(data, kind) and nested_deeper(value, LEVELS_MAX):
            raise ValueError(f"it is nested deeper than {LEVELS_MAX} levels")
        return value

    return decode_value


def _may_be_deep(data: bytes, kind: str) -> bool:
    """Say whether it may be nested deeper than `LEVELS_MAX`, by counting what begins a dict or a list."""
    if kind == "json":
        return data.count(b"[") + data.count(b"{") > LEVELS_MAX
    return len(data.translate(None, _NO_BEGINNING)) > LEVELS_MAX


def _refusing_non_finite(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Refuse NaN and infinity: JSON has neither, and msgspec writes null for them, which the next reader takes for
    None."""

    @wraps(encode)
    def encode_finite(value: Any) -> bytes:
        data = encode(value)
        # Every output passes here: `in` takes twice as long, because it tries the needle as a number first.
        if data.partition(b"null")[1] and not _is_finite(value):
            path = _non_finite(value) or "a number that is not finite"
            raise ValueError(f"JSON cannot hold {path}")
        return data

    return encode_finite


_ENCODE_FINITE = _refusing_non_finite(bytes).__code__


def unchecked(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes] | None:
    """Return a JSON encoder without its check for NaN and infinity; None: it is another encoder."""
    # By its type and code: a user's decorator may copy all else, and a proxy passes every attribute on.
    if type(encode) is FunctionType and encode.__code__ is _ENCODE_FINITE:
        return cast("Callable[[Any], bytes]", encode.__dict__["__wrapped__"])
    return None


def _is_finite(value: Any) -> bool:
    """Say whether JSON can hold every number in it, in two steps written in C: a value with None in it is nothing
    unusual."""
    try:
        _encode_finite(msgspec.to_builtins(value, str_keys=True))
    except ValueError:
        return False
    except TypeError:  # msgspec.Raw, for one, is JSON already
        return _non_finite(value) is None
    return True


def _non_finite(value: Any, path: str = "") -> str | None:
    """Name the place and the number that is not finite: "['rate']: nan"."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} at value{path}"
    found = (_non_finite(each, path + place) for place, each in parts_in(value))
    return next((each for each in found if each is not None), None)


def _takes_none(type_: object) -> bool:
    try:
        msgspec.convert(None, type_)
    except msgspec.ValidationError:
        return False
    return True

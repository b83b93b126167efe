"""Recognises bytes that a codec cannot read: formats that other programs write instead of the declared one, and what to
declare for each. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

BOM = codecs.BOM_UTF8
_MAGIC = (
    (codecs.BOM_UTF16_LE, "UTF-16 text"),
    (codecs.BOM_UTF16_BE, "UTF-16 text"),
    (b"Obj\x01", "an Avro file"),
    (b"PAR1", "a Parquet file"),
    (b"\xac\xed\x00\x05", "an object of Java's own serialization"),
    (b"\x1f\x8b", "gzip: the program compressed it itself"),
    (b"\x28\xb5\x2f\xfd", "zstd: the program compressed it itself"),
    (b"\x04\x22\x4d\x18", "lz4: the program compressed it itself"),
    (b"<?xml", "XML"),
)
_NAMED = re.compile(r"(?:nullable\()?(json|msgpack|utf8|i64|i32|registry)\b")
_NO_NUMBER = re.compile(rb"[\s:,\[](-?(?:NaN|Infinity))\b")
_REPR = re.compile(rb"\s*[{\[(].*('|\bTrue\b|\bFalse\b|\bNone\b)", re.DOTALL)
_PREFIX_BYTES = 5  # a zero and four bytes of the schema's id
_LOOKED_AT_BYTES = 100_000
_OWN_CODEC = 'docs/records.md, "Formats of other programs", has a Codec for it'


class Lookalike(NamedTuple):
    """`what` ends the sentence "it looks like …"; `hint` says what to declare."""

    what: str
    hint: str


def seen_in(side: str, codec: str, data: bytes) -> Lookalike | None:
    """Say what the bytes look like; None: nothing known. `side`: "key" or "value"; `codec`: the name of the codec that
    failed. One of the author's own is not judged."""
    named = _NAMED.match(codec)
    if named is None or (named[1] == "registry" and data[:1] == b"\0"):  # that one says itself what is wrong
        return None
    return next(_seen(side, named[1], data[:_LOOKED_AT_BYTES]), None)


def _seen(side: str, codec: str, data: bytes) -> Iterator[Lookalike]:
    if not data:
        yield Lookalike(
            "an empty text, which is not a null (a tombstone)",
            f"let the producer send null for a deletion; for empty texts declare {side}=utf8",
        )
        return
    if codec == "json":
        yield from _in_place_of_json(side, data)
    if (codec == "json" and _is_json(data, None)) or (codec == "msgpack" and _is_msgpack(data)):
        return  # only the type is another one
    yield from _with_magic(side, codec, data)
    yield from _numbers(side, codec, data)
    if codec != "json" and _is_json(data):
        yield Lookalike("JSON", f"declare {side}=json()")
    if codec != "utf8" and (text := _text(data)) is not None:
        yield Lookalike(f"text, {text[:20]!r}", f"declare {side}=utf8")
    if _is_msgpack(data):
        yield Lookalike("MessagePack", f"declare {side}=msgpack()")
    if _text(data) is None:
        yield Lookalike(
            "binary data, such as Avro or Protobuf", f"declare {side}=raw, or a Codec that decodes it: {_OWN_CODEC}"
        )


def _with_magic(side: str, codec: str, data: bytes) -> Iterator[Lookalike]:
    if data.startswith(BOM):
        yield Lookalike(
            "text with a byte order mark (BOM, EF BB BF)", f"let the producer write UTF-8 without it; {_OWN_CODEC}"
        )
    for magic, what in _MAGIC:
        if data.startswith(magic):
            yield Lookalike(what, f"declare {side}=raw, or a Codec that decodes it: {_OWN_CODEC}")
    schema_id, rest = int.from_bytes(data[1:_PREFIX_BYTES]), data[_PREFIX_BYTES:]
    if data[0] == 0 and schema_id and rest:
        if _is_json(rest):
            of, hint = "JSON", f"declare {side}=registry.json(…) of a SchemaRegistry"
        elif (text := _text(rest)) is None:
            of, hint = (
                "Avro or Protobuf",
                f"declare {side}=registry.avro(…) or registry.protobuf(…) of a SchemaRegistry",
            )
        else:
            of, hint = f"{text[:20]!r}", _OWN_CODEC
        number = int.from_bytes(data, signed=True) if len(data) == 8 and codec != "i64" else None
        other = "" if number is None else f", or the number {number} as LongSerializer writes it"
        way = "" if number is None else f"; for numbers declare {side}=i64"
        yield Lookalike(f"the prefix of a schema registry (id {schema_id}) before {of}{other}", f"{hint}{way}")


def _numbers(side: str, codec: str, data: bytes) -> Iterator[Lookalike]:
    if data.isascii() and _text(data) is not None:
        return
    for size, name, serializer in ((8, "i64", "LongSerializer"), (4, "i32", "IntegerSerializer")):
        if len(data) == size and codec != name:
            number = int.from_bytes(data, signed=True)
            yield Lookalike(f"the number {number} as {serializer} writes it", f"declare {side}={name}")


def _in_place_of_json(side: str, data: bytes) -> Iterator[Lookalike]:
    no_number = _NO_NUMBER.search(b" " + data)
    if no_number is not None and not _is_json(data):
        yield Lookalike(
            f"JSON with {no_number[1].decode()}, which JSON does not have",
            f"let the producer write null (in Python, `json.dumps(…, allow_nan=False)` finds it); {_OWN_CODEC}",
        )
    if data.strip() == b"null":
        yield Lookalike(
            "the JSON null, which is not a null (a tombstone): both would be None, and forwarding None deletes the key",
            f"let the producer send no {side}; {_OWN_CODEC}",
        )
    try:
        inner = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        inner = None
    if isinstance(inner, str) and inner[:1] in "{[" and _is_json(inner.encode(errors="replace")):
        yield Lookalike("JSON inside a JSON text: it was encoded twice", "let the producer encode it once")
    if inner is None and _REPR.match(data):
        yield Lookalike("a Python value as `str()` shows it", "let the producer write `json.dumps(…)`")


def _text(data: bytes) -> str | None:
    """Return text without control characters, else None."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\t\r\n" for each in text) else None


def _is_json(data: bytes, begins: tuple[bytes, ...] | None = (b"{", b"[")) -> bool:
    """Say whether it is JSON, and an object or an array; `begins` None: anything. Nearly any number is JSON, too."""
    if begins is not None and not data.lstrip().startswith(begins):
        return False
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _is_msgpack(data: bytes) -> bool:
    """Say whether it is a map or an array in MessagePack."""
    try:
        return isinstance(msgspec.msgpack.decode(data), dict | list)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError):
        return False

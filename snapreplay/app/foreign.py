"""Recognises bytes that a codec cannot read: formats that other programs write instead of the declared one, and what to
declare for each. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

_NAMED = re.compile(r"(?:nullable\()?(json|msgpack|utf8|i64|i32|registry)\b")
_NO_NUMBER = re.compile(rb"[\s:,\[](-?(?:NaN|Infinity))\b")
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
    is_text, is_json = _text(data) is not None, _is_json(data)
    if codec == "json":
        if data.strip() == b"null":
            yield Lookalike(
                "the JSON null, which is not a null (a tombstone): both would be None, and forwarding None deletes the"
                " key",
                f"let the producer send no {side}; {_OWN_CODEC}",
            )
        if is_json:
            return  # only the type is another one
        if (no_number := _NO_NUMBER.search(b" " + data)) is not None:
            yield Lookalike(
                f"JSON with {no_number[1].decode()}, which JSON does not have",
                f"let the producer write null (in Python, `json.dumps(…, allow_nan=False)` finds it); {_OWN_CODEC}",
            )
    if data.startswith(codecs.BOM_UTF8):
        yield Lookalike(
            "text with a byte order mark (BOM, EF BB BF)", f"let the producer write UTF-8 without it; {_OWN_CODEC}"
        )
    yield from _with_prefix(side, codec, data)
    for size, name, serializer in ((8, "i64", "LongSerializer"), (4, "i32", "IntegerSerializer")):
        if len(data) == size and codec != name and not is_text:
            number = int.from_bytes(data, signed=True)
            yield Lookalike(f"the number {number} as {serializer} writes it", f"declare {side}={name}")
    if is_json and data.lstrip()[:1] in (b"{", b"["):  # nearly any number is JSON, too
        yield Lookalike("JSON", f"declare {side}=json()")
    if is_text and codec != "utf8":
        yield Lookalike(f"text, {data.decode()[:20]!r}", f"declare {side}=utf8")
    if not is_text and codec != "msgpack":
        yield Lookalike(
            "binary data, such as Avro, Protobuf or MessagePack",
            f"declare {side}=raw or msgpack(), or a Codec that decodes it: {_OWN_CODEC}",
        )


def _with_prefix(side: str, codec: str, data: bytes) -> Iterator[Lookalike]:
    schema_id, rest = int.from_bytes(data[1:_PREFIX_BYTES]), data[_PREFIX_BYTES:]
    if data[0] or not schema_id or not rest:
        return
    of, hint = "Avro or Protobuf", f"declare {side}=registry.avro(…) or registry.protobuf(…) of a SchemaRegistry"
    if _is_json(rest) and rest[:1] in (b"{", b"["):
        of, hint = "JSON", f"declare {side}=registry.json(…) of a SchemaRegistry"
    elif (text := _text(rest)) is not None:
        of, hint = f"{text[:20]!r}", _OWN_CODEC
    other = ""
    if len(data) == 8 and codec != "i64":
        other = f", or the number {int.from_bytes(data, signed=True)} as LongSerializer writes it"
        hint += f"; for numbers declare {side}=i64"
    yield Lookalike(f"the prefix of a schema registry (id {schema_id}) before {of}{other}", hint)


def _text(data: bytes) -> str | None:
    """Return text without control characters, else None."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\t\r\n" for each in text) else None


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True

"""Avro, with fastavro: a record is read by the schema that it was written by, and becomes a value of a type."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from snapreplay.app.codecs import Codec
from snapreplay.counted import counted
from snapreplay.errors import UsageError
from snapreplay.registry.avro_schema import NoSchema, schema_of
from snapreplay.registry.framing import PREFIX_BYTES, Decode, Encode, Registered, text_of

_NATIVE = (bytes, datetime, date, time, Decimal, UUID)
"""What fastavro reads and writes besides what JSON has."""


class AvroFormat:
    """Avro for one type. Has the attributes and methods of `framing.Format`."""

    kind = "AVRO"

    def __init__(self, type_: Any, schema: str | None) -> None:
        """Take the schema to write by, and to read as; None: one is made of the type. Raises UsageError: it is no
        schema."""
        self.name = f"registry.avro({type_.__name__ if isinstance(type_, type) else type_})"
        self.why_no_schema = ""
        self.schema: Registered | None = None
        self._type, self._read_as = type_, None
        try:
            if schema is None:
                self.schema = Registered(self.kind, json.dumps(schema_of(type_)))
            else:
                self.schema = Registered(self.kind, schema)
                self._read_as = parsed(self.schema)
        except NoSchema as error:
            self.why_no_schema = str(error)
        except ValueError as error:
            raise UsageError(f"{self.name}: schema={(schema or '')[:80]!r} is no Avro schema: {error}") from error

    def full_name(self, schema: Registered) -> str:
        found = parsed(schema)
        return str(found["name"] if isinstance(found, dict) and "name" in found else found)

    def reader(self, schema: Registered, at: int = PREFIX_BYTES) -> Decode:
        """Take `at`: where values begin."""
        written_by = parsed(schema)
        read_as, made, read = self._read_as, _making(self._type), fastavro.schemaless_reader

        def decode(data: bytes) -> Any:
            stream = io.BytesIO(data)
            stream.seek(at)
            try:
                value = read(stream, written_by, read_as)
            except (EOFError, IndexError) as error:
                raise ValueError(f"the bytes end inside the value ({type(error).__name__})") from error
            if stream.tell() != len(data):
                rest = len(data) - stream.tell()
                raise ValueError(f"{counted(rest, 'byte')} follow{'s' * (rest == 1)} the value")
            return made(value)

        return decode

    def writer(self, schema: Registered) -> Encode:
        write_by = parsed(schema)
        taken, write = _taking(self._type), fastavro.schemaless_writer
        has_moments = '"timestamp-' in schema.text

        def encode(value: Any) -> bytes:
            parts = taken(value)
            try:
                validate(parts, write_by)  # `schemaless_writer` makes 5 of 5.7, and True of "no"
            except ValidationError as error:
                raise ValueError("; ".join(map(str, error.errors))) from error
            if has_moments and (naive := _naive(parts)) is not None:
                raise ValueError(f"{naive} has no time zone, but the schema has a moment: use an aware datetime")
            stream = io.BytesIO()
            write(stream, write_by, parts, strict_allow_default=True)
            return stream.getvalue()

        return encode


def codec_without_registry(type_: Any, schema: str | Path | None, written_by: str | Path | None) -> Codec[Any]:
    """Return the codec of `snapreplay.avro`."""
    form = AvroFormat(type_, text_of(schema))
    name = form.name.removeprefix("registry.")
    if form.schema is None:
        raise UsageError(f"{name}: {form.why_no_schema}", hint='give a schema: `schema=Path("order.avsc")`')
    other = text_of(written_by)
    try:
        decode = form.reader(form.schema if other is None else Registered(AvroFormat.kind, other), at=0)
    except ValueError as error:
        raise UsageError(f"{name}: written_by={(other or '')[:80]!r} is no Avro schema: {error}") from error
    return Codec(name, decode, form.writer(form.schema))


def parsed(schema: Registered) -> Any:
    """Return a schema for fastavro, or raise ValueError."""
    named: dict[str, Any] = {}
    found = _parse(schema, named)
    if _is_recursive(found, named):  # fastavro's reader, in C, recurses until the process crashes
        raise ValueError("a type in it contains itself, so a value could be nested without end")
    return found


def _is_recursive(schema: Any, named: Mapping[str, Any], inside: frozenset[str] = frozenset()) -> bool:
    if isinstance(schema, list):
        return any(_is_recursive(each, named, inside) for each in schema)
    if isinstance(schema, str):
        return schema in inside or (schema in named and _is_recursive(named[schema], named, inside))
    if name := schema.get("name"):
        if name in inside:
            return True
        inside |= {name}
    parts = [each["type"] for each in schema.get("fields", ())]
    parts += [schema[each] for each in ("items", "values") if each in schema]
    return any(_is_recursive(each, named, inside) for each in parts)


def _parse(schema: Registered, named: dict[str, Any]) -> Any:
    for each in schema.references:
        _parse(each, named)
    try:
        return fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (SchemaParseException, UnknownType, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _making(type_: Any) -> Callable[[Any], Any]:
    """Return what makes a value of this type of what fastavro has read."""
    if type_ is Any:
        return lambda value: value
    if (validated := getattr(type_, "model_validate", None)) is not None:  # Pydantic's
        return validated  # type: ignore[no-any-return]  # getattr gives Any
    return partial(msgspec.convert, type=type_)


def _taking(type_: Any) -> Callable[[Any], Any]:
    """Return what makes of a value what fastavro writes; equal values become equal bytes."""
    builtins = partial(msgspec.to_builtins, builtin_types=_NATIVE, order="deterministic")
    if hasattr(type_, "model_dump"):
        return lambda value: builtins(value.model_dump(by_alias=True))
    return builtins


def _naive(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo is None else None
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next(filter(None, map(_naive, parts)), None)

"""Avro, with fastavro: a record is read by the schema that it was written by, and becomes a value of a type."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate
from msgspec import inspect

from snapreplay.app.codecs import Codec
from snapreplay.counted import counted
from snapreplay.errors import UsageError
from snapreplay.registry.framing import PREFIX_BYTES, Decode, Encode, Registered, text_of

_NATIVE = (bytes, datetime, date, time, Decimal, UUID)
"""What fastavro reads and writes besides what JSON has."""


class AvroFormat:
    """Avro for one type. Has the attributes and methods of `framing.Format`."""

    kind = "AVRO"

    def __init__(self, type_: Any, schema: str | None, call: str = "registry.avro") -> None:
        """Take the schema to write by, and to read as; None: one is made of the type.

        Raises:
            UsageError: it is no schema, or its values may be nested without end.
        """
        self.name = f"{call}({type_.__name__ if isinstance(type_, type) else type_})"
        self.why_no_schema = ""
        self.schema: Registered | None = None
        self._type, self._read_as = type_, None
        try:
            taken = Registered(self.kind, json.dumps(schema_of(type_)) if schema is None else schema)
            found = parsed(taken)
        except NoSchema as error:
            self.why_no_schema = str(error)
        except RecursiveSchema as error:
            raise UsageError(f"{self.name}: {error}", hint=error.hint) from error
        except ValueError as error:
            raise UsageError(f"{self.name}: schema={(schema or '')[:80]!r} is no Avro schema: {error}") from error
        else:
            self.schema, self._read_as = taken, None if schema is None else found

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


class RecursiveSchema(ValueError):
    """A schema has a type that contains itself: fastavro's reader, in C, recurses until the process crashes."""

    hint = "store it flat, such as a list of records that name their parent, or as JSON: `json(…)`"

    def __init__(self, name: str) -> None:
        super().__init__(f"the type {name} contains itself, so a value could be nested without end")


def codec_without_registry(type_: Any, schema: str | Path | None, written_by: str | Path | None) -> Codec[Any]:
    form = AvroFormat(type_, text_of(schema), "avro")
    name = form.name
    if form.schema is None:
        raise UsageError(f"{name}: {form.why_no_schema}", hint='give a schema: `schema=Path("order.avsc")`')
    other = text_of(written_by)
    try:
        decode = form.reader(form.schema if other is None else Registered(AvroFormat.kind, other), at=0)
    except ValueError as error:
        shown, hint = (other or "")[:80], error.hint if isinstance(error, RecursiveSchema) else ""
        raise UsageError(f"{name}: written_by={shown!r} cannot be used: {error}", hint=hint) from error
    return Codec(name, decode, form.writer(form.schema))


def parsed(schema: Registered) -> Any:
    """Return a schema for fastavro, or raise ValueError."""
    named: dict[str, Any] = {}
    found = _parse(schema, named)
    if recursive := _recursive(found, named):
        raise RecursiveSchema(recursive)
    return found


def _recursive(schema: Any, named: Mapping[str, Any], inside: frozenset[str] = frozenset()) -> str | None:
    """Return the name of a type that contains itself."""
    if isinstance(schema, list):
        parts = schema
    elif isinstance(schema, str):
        if schema in inside:
            return schema
        parts = [named[schema]] if schema in named else []
    else:
        if name := schema.get("name"):
            if name in inside:
                return str(name)
            inside |= {name}
        parts = [each["type"] for each in schema.get("fields", ())]
        parts += [schema[each] for each in ("items", "values") if each in schema]
    return next(filter(None, (_recursive(each, named, inside) for each in parts)), None)


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


# --------------------------------------------------------------------- the schema of a type

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[type[inspect.Type], Any] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
    inspect.UUIDType: {"type": "string", "logicalType": "uuid"},
    inspect.DateType: {"type": "int", "logicalType": "date"},
    inspect.TimeType: {"type": "long", "logicalType": "time-micros"},
}


_DEFAULTS = [
    *((type(None), "null"), (bool, "boolean"), (int, "long"), (float, "double"), (str, "string"), (str, "enum")),
    *((list, "array"), (dict, "map")),
]


class NoSchema(Exception):
    """Avro has no schema for a type."""


def schema_of(type_: Any) -> Any:
    """Return the schema, or raise NoSchema. A record is named as its class, without a namespace."""
    try:
        node = inspect.type_info(type_)
    except (TypeError, NameError) as error:
        raise NoSchema(str(error)) from error
    return _schema(node, {})


def _schema(node: inspect.Type, named: dict[str, type]) -> Any:
    if isinstance(node, inspect.DateTimeType):
        kind = "local-timestamp-micros" if node.tz is False else "timestamp-micros"
        return {"type": "long", "logicalType": kind}
    if (plain := _PLAIN.get(type(node))) is not None:
        return plain
    match node:
        case inspect.EnumType(cls):
            symbols = [each.value for each in cls]
            if not all(isinstance(each, str) and _NAME.fullmatch(each) for each in symbols):
                raise NoSchema(f"the values of {cls.__name__} are no symbols of an Avro enum")
            return _once(cls, named, {"type": "enum", "name": cls.__name__, "symbols": symbols})
        case inspect.DictType(inspect.StrType(), value_type):
            return {"type": "map", "values": _schema(value_type, named)}
        case inspect.UnionType(types):
            return [_schema(each, named) for each in types]
        case inspect.DecimalType():
            raise NoSchema("a Decimal needs a precision and a scale, which only a schema has")
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return {"type": "array", "items": _schema(node.item_type, named)}
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            return _record(node, named)
        case _:
            raise NoSchema(f"Avro has no type for {type(node).__name__.removesuffix('Type')}")


def _record(node: Any, named: dict[str, type]) -> Any:
    cls, fields = node.cls, list[Any]()
    record: Any = {"type": "record", "name": cls.__name__, "fields": fields}
    if getattr(node, "tag", None) is not None or getattr(node, "array_like", False):
        raise NoSchema(f"{cls.__name__} is written with a tag or as an array, which a record has not")
    if (known := _once(cls, named, record)) is not record:
        return known
    for each in node.fields:
        field = {"name": each.encode_name, "type": _schema(each.type, named)}
        if not each.required:
            _add_default(field, each)
        fields.append(field)
    return record


def _once(cls: type, named: dict[str, type], schema: Any) -> Any:
    """Return the schema of a type that has a name; where the type occurs again, its name."""
    if cls.__name__ not in named:
        named[cls.__name__] = cls
        return schema
    if named[cls.__name__] is not cls:
        raise NoSchema(f"two types have the name {cls.__name__}")
    return cls.__name__


def _add_default(field: dict[str, Any], each: inspect.Field) -> None:
    """Add the default, if a schema can have it. That of a union is of its first type."""
    default = each.default_factory() if each.default_factory in (list, dict) else each.default
    default = default.value if isinstance(default, Enum) else default
    kinds = [name for cls, name in _DEFAULTS if type(default) is cls]
    types = field["type"] if isinstance(field["type"], list) else [field["type"]]
    first = next((one for one in types if (one["type"] if isinstance(one, dict) else one) in kinds), None)
    if first is not None:
        field["default"] = default
        if isinstance(field["type"], list):
            field["type"] = [first, *(one for one in types if one is not first)]

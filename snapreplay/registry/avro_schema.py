"""Makes the Avro schema of a Python type. Pure."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from msgspec import inspect

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

"""How deep a value in Avro is nested, before fastavro reads it: its reader, in C, recurses until the process crashes.

Only a schema that contains itself can nest without end. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snapreplay.registry.framing import zigzag
from snapreplay.state.read_back import LEVELS_MAX

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINTS = {"int", "long", "enum"}


class TooDeep(ValueError):
    """The value is nested deeper than `LEVELS_MAX` levels."""

    def __init__(self) -> None:
        super().__init__(f"it is nested deeper than {LEVELS_MAX} levels")


def is_recursive(schema: Any, named: Mapping[str, Any], inside: frozenset[str] = frozenset()) -> bool:
    """Say whether a type in a parsed schema contains itself; `named`: the types with a name."""
    if isinstance(schema, list):
        return any(is_recursive(each, named, inside) for each in schema)
    if isinstance(schema, str):
        return schema in inside or (schema in named and is_recursive(named[schema], named, inside))
    if name := schema.get("name"):
        if name in inside:
            return True
        inside |= {name}
    parts = [each["type"] for each in schema.get("fields", ())]
    parts += [schema[each] for each in ("items", "values") if each in schema]
    return any(is_recursive(each, named, inside) for each in parts)


def check_depth(schema: Any, named: Mapping[str, Any], data: bytes, at: int) -> None:
    """Raise TooDeep, or IndexError: the bytes end too early."""
    if len(data) - at > LEVELS_MAX:  # each level takes a byte at least
        _passed(schema, data, at, named, 0)


def _passed(schema: Any, data: bytes, at: int, named: Mapping[str, Any], levels: int) -> int:
    """Return where the value ends."""
    if levels > LEVELS_MAX:
        raise TooDeep
    if isinstance(schema, list):
        index, at = zigzag(data, at)
        return _passed(schema[index], data, at, named, levels + 1)
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        return _passed(kind, data, at, named, levels)
    if kind in _SIZES:
        return _behind(data, at, _SIZES[kind])
    if kind in _VARINTS:
        return zigzag(data, at)[1]
    if kind == "fixed":
        return _behind(data, at, int(schema["size"]))
    if kind in ("array", "map"):
        return _passed_blocks(schema, kind, data, at, named, levels)
    if kind in ("record", "error"):
        for each in schema["fields"]:
            at = _passed(each["type"], data, at, named, levels + 1)
        return at
    size, at = zigzag(data, at)  # bytes or string
    return _behind(data, at, size)


def _passed_blocks(schema: Any, kind: str, data: bytes, at: int, named: Mapping[str, Any], levels: int) -> int:
    while True:
        count, at = zigzag(data, at)
        if count == 0:
            return at
        if count < 0:
            at = zigzag(data, at)[1]
        for _ in range(abs(count)):
            if kind == "map":
                size, at = zigzag(data, at)
                at = _behind(data, at, size)
            at = _passed(schema["items" if kind == "array" else "values"], data, at, named, levels + 2)


def _behind(data: bytes, at: int, size: int) -> int:
    """Return where so many bytes end. Without the check, a damaged count of doubles would be followed for years."""
    if not 0 <= size <= len(data) - at:
        raise IndexError(at)
    return at + size

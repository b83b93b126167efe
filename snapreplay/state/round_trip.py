"""The question whether a value can be written and reads back as itself: by types alone if that is enough, else part by
part; of one that cannot be written, which part is at fault, and what to do about it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import chain
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from snapreplay import engine
from snapreplay.errors import RecordError

SCALARS = frozenset({NoneType, bool, int, float, str, bytes})
"""Types that msgpack keeps exactly; an int or str it cannot hold fails to encode."""

_SHOWN_MAX = 60
_STR, _DICT, _LIST = frozenset({str}), frozenset({dict}), frozenset({list})
_SCALAR_NODES: dict[type[inspect.Type], type] = {
    inspect.NoneType: NoneType,
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
}

# --------------------------------------------------------------------- by types alone


FlatCheck = Callable[[Sequence[Any]], bool]
"""Checks many values at once: by columns it costs a third of what it costs value by value."""


def flat_check(node: inspect.Type) -> FlatCheck:
    """Return a function that is True only if all these values, of this declared type, surely read back as themselves
    and have no mutable object inside. False means that each must be compared."""
    allowed = _scalar_types(node)
    if isinstance(node, inspect.AnyType):
        in_dicts, in_lists = _flat_dicts(SCALARS), _flat_lists(SCALARS)
        return lambda values: SCALARS.issuperset(map(type, values)) or in_dicts(values) or in_lists(values)
    if allowed is not None:
        return lambda values: allowed.issuperset(map(type, values))
    if isinstance(node, inspect.DictType) and _unconstrained(node, "key_type", "value_type"):
        keys, inner = _scalar_types(node.key_type), _scalar_types(node.value_type)
        if keys is not None and str in keys and inner is not None:
            return _flat_dicts(inner)
    if isinstance(node, inspect.ListType) and _unconstrained(node, "item_type"):
        items = _scalar_types(node.item_type)
        if items is not None:
            return _flat_lists(items)
    if isinstance(node, inspect.StructType | inspect.DataclassType):
        return _flat_objects(node)
    return lambda _: False


def is_shareable(node: inspect.Type) -> bool:
    """Say whether values of this declared type are immutable through and through."""
    if isinstance(node, inspect.AnyType):
        return False
    if isinstance(node, inspect.StructType | inspect.DataclassType):
        fields = [_scalar_types(field.type) for field in node.fields]
        return is_frozen(node.cls) and all(types and types != SCALARS for types in fields)
    return _scalar_types(node) is not None


def _scalar_types(node: inspect.Type) -> frozenset[type] | None:
    """Return the scalar types that this declared type gives back unchanged; None if not that simple."""
    if isinstance(node, inspect.AnyType):
        return SCALARS
    if isinstance(node, inspect.UnionType):
        members = [_scalar_types(member) for member in node.types]
        return frozenset().union(*(m for m in members if m)) if all(members) else None
    scalar = _SCALAR_NODES.get(type(node))
    return frozenset({scalar}) if scalar is not None and _unconstrained(node) else None


def _unconstrained(node: inspect.Type, *inner: str) -> bool:
    return all(getattr(node, name) is None for name in node.__struct_fields__ if name not in inner)


def _flat_dicts(allowed: frozenset[type]) -> FlatCheck:
    return lambda values: (
        _DICT.issuperset(map(type, values))
        and allowed.issuperset(map(type, chain.from_iterable(map(dict.values, values))))
        and _STR.issuperset(map(type, chain.from_iterable(values)))
    )


def _flat_lists(allowed: frozenset[type]) -> FlatCheck:
    return lambda values: (
        _LIST.issuperset(map(type, values)) and allowed.issuperset(map(type, chain.from_iterable(values)))
    )


def _flat_objects(node: inspect.StructType | inspect.DataclassType) -> FlatCheck:
    cls = frozenset({node.cls})
    fields: list[tuple[Callable[[Any], Any], frozenset[type]]] = []
    named: list[tuple[str, list[type]]] = []
    for field in node.fields:
        allowed = _scalar_types(field.type)
        if allowed is None or hasattr(node.cls, "__post_init__"):
            return lambda _: False
        fields.append((attrgetter(field.name), allowed))
        named.append((field.name, list(allowed)))

    def are_flat(values: Sequence[Any]) -> bool:
        # Of a generic class this is an alias, so no object's type: each value is compared.
        if engine.compiled is not None and isinstance(node.cls, type) and isinstance(values, list):
            found = engine.compiled.are_flat(values, node.cls, named)
            if found is not None:
                return found
        return cls.issuperset(map(type, values)) and all(
            allowed.issuperset(map(type, map(get, values))) for get, allowed in fields
        )

    return are_flat


# --------------------------------------------------------------------- by comparison


def same(part: object, part_back: object) -> bool:
    """Say whether this part is the same, apart from what is inside it."""
    if type(part) is not type(part_back):
        return False
    if isinstance(part, dict) and isinstance(part_back, dict):
        return part.keys() == part_back.keys() and _STR.issuperset(map(type, part))
    if isinstance(part, list | tuple) and isinstance(part_back, list | tuple):
        return len(part) == len(part_back)
    if isinstance(part, set | frozenset) and isinstance(part_back, set | frozenset):
        return part == part_back and set(map(type, part)) == set(map(type, part_back))
    if isinstance(part, msgspec.Struct) or dataclasses.is_dataclass(part):
        return True
    if isinstance(part, float) and part != part:  # noqa: PLR0124 - NaN is the only one
        return part_back != part_back  # noqa: PLR0124 - as above
    # Equal datetimes may have different time zones, equal Decimals different digits; a Decimal NaN equals nothing.
    return repr(part) == repr(part_back) and (isinstance(part, Decimal) or part == part_back)


def shown(part: object) -> str:
    """Type and shortened value, for messages."""
    return f"{type(part).__name__} {_cut(_text(part))}"


def shown_apart(part: object, other: object) -> tuple[str, str]:
    """Types and shortened values of two that differ, with the place where they do."""
    one, two = _text(part), _text(other)
    start = 0
    if max(len(one), len(two)) > _SHOWN_MAX:
        same_chars = next((at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), 0)
        start = max(0, same_chars - 20)
    ahead = "..." if start else ""
    return tuple(f"{type(each).__name__} {ahead}{_cut(text[start:])}" for each, text in ((part, one), (other, two)))  # type: ignore[return-value]


def _text(part: object) -> str:
    return part.isoformat() if isinstance(part, datetime) else repr(part)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def is_frozen(cls: Any) -> bool:
    """Say whether the fields of this Struct or dataclass cannot be assigned; False for any other class."""
    config = getattr(cls, "__struct_config__", None) or getattr(cls, "__dataclass_params__", None)
    return bool(config is not None and config.frozen)


def parts_in(value: Any) -> Iterator[tuple[str, Any]]:
    """Return the name and the value of each part, as an expression has it: "[3]", "['key']", ".field"."""
    if isinstance(value, dict):
        return ((f"[{key!r}]", part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return ((f"[{number}]", part) for number, part in enumerate(value))
    if isinstance(value, set | frozenset):
        return ((f"[{part!r}]", part) for part in value)
    return ((f".{name}", getattr(value, name, None)) for name in field_names(type(value)) or ())


def field_names(cls: type) -> Sequence[str] | None:
    """Name the fields; None if there is no inside."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return None


# --------------------------------------------------------------------- what cannot be written

_DEPTH_MAX = 20
"""Deeper inside nobody looks: the encoder's own reason is told."""

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


class Unwritable(NamedTuple):
    """The name of the value, `path` and `why` are a sentence."""

    path: str
    why: str
    hint: str


def lost_attribute(place: str, name: str) -> RecordError:
    """Return the error for an attribute that a handler sets on a map."""
    return RecordError(
        f"{place}.{name} would be lost: a map keeps its entries and nothing else",
        hint=f"store it under a key: `{place}[{name!r}] = …`",
    )


def unwritable(value: object, cause: BaseException) -> Unwritable | None:
    """Return what in `value` made an encoder raise `cause`; None: it is not known."""
    for path, part in _parts(value, "", 0):
        keys = list(part) if isinstance(part, dict) else []
        if isinstance(cause, UnicodeEncodeError):
            hint = "use strings without lone surrogates, or bytes"
            if _has_surrogates(part):
                return Unwritable(path, f"is {shown(part)}", hint)
            if wrong := [key for key in keys if _has_surrogates(key)]:
                return Unwritable(path, f"is a dict with the key {shown(wrong[0])}", hint)
        elif isinstance(cause, OverflowError):
            if isinstance(part, int) and not _INT_MIN <= part <= _INT_MAX:
                return Unwritable(path, f"is {shown(part)}", "use ints of at most 64 bits, or text")
        elif isinstance(cause, TypeError | ValueError) and (wrong := [k for k in keys if not isinstance(k, str)]):
            why = f"is a dict with the key {shown(wrong[0])}, but keys of a dict must be str"
            return Unwritable(path, why, f"use dicts with str keys: {_as_str(wrong[0])}")
    return None


def _as_str(key: object) -> str:
    """Say what to write for a key that is none: `str(…)` makes the texts 'None' and "b'a'" of two of them."""
    if key is None:
        return "leave out the entry without a key"
    return f"`{key!r}.decode()`" if isinstance(key, bytes) else f"`{str(key)!r}` for `{key!r}`"


def _has_surrogates(part: object) -> bool:
    return isinstance(part, str) and any("\ud800" <= each <= "\udfff" for each in part)


def _parts(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    """Yield the value and all that is inside it, each with its place."""
    yield path, value
    if depth < _DEPTH_MAX:
        for name, part in parts_in(value):
            yield from _parts(part, path + name, depth + 1)

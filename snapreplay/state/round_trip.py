"""Checks that a value reads back as itself: by types alone if that is enough, else by comparison. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from types import NoneType
from typing import Any

import msgspec
from msgspec import inspect

SCALARS = frozenset({NoneType, bool, int, float, str, bytes})
"""Types that msgpack keeps exactly; an int or str it cannot hold fails to encode."""

Owners = dict[int, str]
"""id of a mutable object in the state → its place, as a message names it."""

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
    """Returns a function that is True only if all these values, of this declared type, surely read back as themselves
    and have no mutable object inside. False means that each must be compared.
    """
    allowed = _scalar_types(node)
    if isinstance(node, inspect.AnyType):
        in_dicts, in_lists = _flat_dicts(SCALARS), _flat_lists(SCALARS)
        return lambda values: (
            SCALARS.issuperset(map(type, values)) or in_dicts(values) or in_lists(values)
        )
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
    """Whether values of this declared type are immutable through and through."""
    if isinstance(node, inspect.AnyType):
        return False
    if isinstance(node, inspect.StructType | inspect.DataclassType):
        fields = [_scalar_types(field.type) for field in node.fields]
        return _is_frozen(node.cls) and all(types and types != SCALARS for types in fields)
    return _scalar_types(node) is not None


def _scalar_types(node: inspect.Type) -> frozenset[type] | None:
    """The scalar types that this declared type gives back unchanged; None if not that simple."""
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
        _LIST.issuperset(map(type, values))
        and allowed.issuperset(map(type, chain.from_iterable(values)))
    )


def _flat_objects(node: inspect.StructType | inspect.DataclassType) -> FlatCheck:
    cls = frozenset({node.cls})
    fields: list[tuple[Callable[[Any], Any], frozenset[type]]] = []
    for field in node.fields:
        allowed = _scalar_types(field.type)
        if allowed is None or hasattr(node.cls, "__post_init__"):
            return lambda _: False
        fields.append((attrgetter(field.name), allowed))
    return lambda values: (
        cls.issuperset(map(type, values))
        and all(allowed.issuperset(map(type, map(get, values))) for get, allowed in fields)
    )


# --------------------------------------------------------------------- by comparison


def parts_with_read_back(
    value: object, back: object, path: str = ""
) -> Iterator[tuple[str, object, object, bool]]:
    """Yields (path in the value, part, what it reads back as, whether the part is mutable), the value itself first.

    It descends only where both have the same type, and leaves out scalars whose types agree.
    """
    inner = _inner(value, back) if type(value) is type(back) else None
    yield path, value, back, inner is not None and not _is_immutable(value)
    for name, part, part_back in inner or ():
        yield from parts_with_read_back(part, part_back, path + name)


def same(part: object, part_back: object) -> bool:
    """Whether this part is the same, apart from what is inside it."""
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
    # Equal datetimes may have different time zones, equal Decimals different digits.
    return part == part_back and repr(part) == repr(part_back)


def shown(part: object) -> str:
    """Type and shortened value, for messages."""
    text = repr(part)
    return f"{type(part).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _inner(value: Any, back: Any) -> Iterable[tuple[str, object, object]] | None:
    """Pairs of inner parts with their names; None if there is no inside."""
    if isinstance(value, dict):
        if _same_scalars(value.values(), [back.get(key) for key in value]):
            return ()
        return [(f"[{key!r}]", part, back.get(key)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        if _same_scalars(value, back):
            return ()
        return [(f"[{i}]", *pair) for i, pair in enumerate(zip(value, back, strict=False))]
    if isinstance(value, set):
        return ()
    if isinstance(value, msgspec.Struct):
        names: Iterable[str] = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        return None
    return [(f".{name}", getattr(value, name), getattr(back, name)) for name in names]


def _same_scalars(values: Iterable[object], backs: Iterable[object]) -> bool:
    kinds = list(map(type, values))
    return SCALARS.issuperset(kinds) and kinds == list(map(type, backs))


def _is_immutable(value: object) -> bool:
    return isinstance(value, tuple) or _is_frozen(type(value))


def _is_frozen(cls: Any) -> bool:
    config = getattr(cls, "__struct_config__", None) or getattr(cls, "__dataclass_params__", None)
    return bool(config is not None and config.frozen)

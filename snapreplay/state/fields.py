"""The fields that stored values have, as the code declares them and as the log records them. Pure.

msgspec passes over what a type does not declare, so code that does not know a field would drop it with the next write
of the value; and a field that is not stored gets its default. Digests cannot tell: they prove the bytes. So every
increment records the fields of the code that wrote it, and a recovery compares them before the first record.

A path leads to a field: `email`, `address.zip`, `lines[].sku`, `<card>.number` in a Struct with a tag, `0=` in
one that is stored as an array. `*` stands for any field: of a dict, or of a value without a declared type. A `-` in
front says that the field was dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.state.canonical import nodes_in

ANY = "*"

Object = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)


class StoreFields(msgspec.Struct, frozen=True):
    """The fields of one store of an app.

    Attributes:
        dropped: paths whose stored values may be lost.
        cycles: places of a type inside itself, where its fields are not followed again.
    """

    paths: frozenset[str]
    dropped: tuple[str, ...] = ()
    cycles: tuple[str, ...] = ()


class _Place(NamedTuple):
    """The place of a type."""

    node: inspect.Type
    path: str


def store_fields(node: inspect.Type, dropped: tuple[str, ...] = ()) -> StoreFields:
    """Return the paths of all fields of a declared type. A type that contains itself is followed once, at its shortest
    path: there are more ways through a few of them than can be counted."""
    paths: set[str] = set()
    cycles: list[str] = []
    recursive = {
        id(each)
        for each in nodes_in(node)
        if isinstance(each, OBJECTS) and any(inner is each for inner in nodes_in(each.fields))
    }
    seen: set[int] = set()
    waiting = deque([_Place(node, "")])
    while waiting:
        place = waiting.popleft()
        if not isinstance(place.node, OBJECTS):
            waiting += _parts(place)
            if isinstance(place.node, inspect.AnyType | inspect.DictType):
                paths.add(_joined(place.path, ANY))
            continue
        path = _with_tag(place)
        if id(place.node) in recursive & seen:
            cycles.append(path)
            continue
        seen.add(id(place.node))
        for found, field in _fields(place.node, path):
            paths.add(found)
            waiting.append(_Place(field.type, found))
    return StoreFields(frozenset(paths), dropped, tuple(cycles))


def _parts(place: _Place) -> Iterator[_Place]:
    node, path = place
    match node:
        case inspect.Metadata():
            yield _Place(node.type, path)
        case inspect.UnionType():
            yield from (_Place(member, path) for member in node.types)
        case inspect.DictType(value_type=inspect.AnyType()):
            return
        case inspect.DictType():
            yield _Place(node.value_type, f"{path}{{}}")
        case inspect.TupleType():
            for number, item in enumerate(node.item_types):
                yield _Place(item, f"{path}[{number}]")
        case inspect.CollectionType():
            yield _Place(node.item_type, f"{path}[]")
        case _:
            return


def _with_tag(place: _Place) -> str:
    tag = place.node.tag if isinstance(place.node, inspect.StructType) else None
    return place.path if tag is None else f"{place.path}<{tag}>"


def _fields(node: Object, path: str) -> Iterator[tuple[str, inspect.Field]]:
    """Yield the path of each field, and the field. Names are not stored in an array."""
    is_array = isinstance(node, inspect.NamedTupleType) or getattr(node, "array_like", False)
    for number, field in enumerate(node.fields):
        yield _joined(path, f"{number}=" if is_array else field.encode_name), field


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def check_dropped(dropped: object) -> tuple[str, ...]:
    """Return the names, or raise UsageError: they are no names of fields."""
    if isinstance(dropped, str) or not isinstance(dropped, Iterable):
        raise UsageError(f"MapState: dropped={dropped!r} is no sequence of names", hint='use `dropped=("email",)`')
    names = tuple(dropped)
    if not all(isinstance(each, str) and each for each in names):
        raise UsageError(
            f"MapState: dropped={names!r} has something else than names of fields", hint='use `dropped=("email",)`'
        )
    return names

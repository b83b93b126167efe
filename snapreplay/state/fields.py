"""The fields that stored values have, as the code declares them and as the log records them. Pure.

msgspec passes over what a type does not declare, so code that does not know a field would drop it with the next write
of the value; and a field that is not stored gets its default. Digests cannot tell: they prove the bytes. So every
increment records the fields of the code that wrote it, and a recovery compares them before the first record.

It also records their layout, which decides what the bytes mean: the order of the fields of an array, the default of a
field that is not stored, the names of the members of an enum. Two versions of an app may read the same bytes without an
error and take them for different values.

A path leads to a field: `email`, `address.zip`, `lines[].sku`, `<card>.number` in a Struct with a tag, `0=` in
one that is stored as an array. `*` stands for any field: of a dict, or of a value without a declared type. A `-` in
front says that the field was dropped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.canonical import nodes_in

UNSET_TEXT = "unset"
"""Stands for a field that is missing in the object, too: msgspec.UNSET, or a key of a TypedDict."""

TEXT_MAX = 120
"""A longer default is recorded by its hash."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Another one in each process."""

_json = msgspec.json.Encoder(order="deterministic").encode


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """The layout of the values of one store, by [path](FORMAT.md#fields). What has none of it is not in it.

    Attributes:
        places: place of an array → the stored name of the field that is there.
        absent: field that may be missing in a stored value → what that means: the default as JSON, or "unset".
        members: enum → its values as text → the names that each has.
        tags: object with a tag → the name of its class.
        sets: paths of sets, which keep neither the order nor repeated items.
    """

    places: dict[str, str] = {}
    absent: dict[str, str] = {}
    members: dict[str, dict[str, list[str]]] = {}
    tags: dict[str, str] = {}
    sets: list[str] = []


def default_text(field: inspect.Field) -> str | None:
    """Return what the field is where it is not stored; None: it must be stored."""
    if field.required:
        return None
    if field.default is not msgspec.NODEFAULT:
        return _text(field.default)
    if field.default_factory is msgspec.NODEFAULT:
        return UNSET_TEXT
    try:
        return _text(field.default_factory())
    except BaseException as error:  # the user's function may raise anything: without the field, nothing can be read
        if of_a_signal(error):
            raise
        return None


def _text(value: object) -> str:
    try:
        text = _json(value).decode()
    except (TypeError, ValueError):  # a type that JSON cannot hold, such as a mark of its own: `MISSING = object()`
        text = _ADDRESS.sub("", repr(value))
    return text if len(text) <= TEXT_MAX else f"sha256:{sha256(text.encode()).hexdigest()[:16]}"


def may_be_left_out(node: Any, field: inspect.Field) -> bool:
    """Say whether values are written without the field where it is at its default."""
    if field.required or getattr(node, "array_like", False) or isinstance(node, inspect.NamedTupleType):
        return False
    if field.default is field.default_factory:  # neither is given: it is unset
        return True
    config = getattr(node.cls, "__struct_config__", None)
    is_constant = field.default is not msgspec.NODEFAULT or field.default_factory in (list, dict, set)
    return bool(config is not None and config.omit_defaults and is_constant)


def members_of(node: inspect.EnumType) -> dict[str, list[str]]:
    """Return the names of each value of an enum, aliases included."""
    found: dict[str, list[str]] = {}
    for name, member in node.cls.__members__.items():
        found.setdefault(str(member.value), []).append(name)
    return found


ANY = "*"

Object = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)


class StoreFields(msgspec.Struct, frozen=True):
    """The fields of one store of an app.

    Attributes:
        dropped: paths whose stored values may be lost.
        repeated: place of a recursive type where it is not followed → the place where it is.
        layout: what decides their meaning, as an increment records it.
        defaults: field that has a default → that default, as in `Layout.absent`.
    """

    paths: frozenset[str]
    dropped: tuple[str, ...] = ()
    repeated: Mapping[str, str] = {}
    layout: Layout = Layout()
    defaults: Mapping[str, str] = {}

    def at(self, path: str) -> str:
        """Return the path in the place where the type that has the field is followed."""
        for _ in range(path.count(".")):  # each step leaves a shorter part below its place
            place = next((each for each in self.repeated if path.startswith(f"{each}.")), None)
            if place is None:
                break
            path = _joined(self.repeated[place], path[len(place) + 1 :])
        return path


class _Place(NamedTuple):
    """The place of a type. `followed`: the types of the cycle around it, each with the place where it is followed."""

    node: inspect.Type
    path: str
    followed: dict[int, str] | None = None


def store_fields(node: inspect.Type, dropped: tuple[str, ...] = ()) -> StoreFields:
    """Return the paths of all fields of a declared type.

    Types that contain each other are followed once from where the first of them is met, nearest first: there are more
    ways through a few of them than can be counted.
    """
    paths: set[str] = set()
    repeated: dict[str, str] = {}
    layout, defaults, sets = Layout({}, {}, {}, {}, []), dict[str, str](), set[str]()
    recursive = {
        id(each)
        for each in nodes_in(node)
        if isinstance(each, OBJECTS) and any(inner is each for inner in nodes_in(each.fields))
    }
    waiting = deque([_Place(node, "")])
    while waiting:
        place = waiting.popleft()
        if not isinstance(place.node, OBJECTS):
            waiting += _parts(place)
            if isinstance(place.node, inspect.AnyType | inspect.DictType):
                paths.add(_joined(place.path, ANY))
            elif isinstance(place.node, inspect.SetType | inspect.FrozenSetType):
                sets.add(place.path)
            elif isinstance(place.node, inspect.EnumType):
                layout.members[place.path] = members_of(place.node)
            continue
        path, followed = _with_tag(place), None
        if id(place.node) in recursive:
            followed = {} if place.followed is None else place.followed
            first = followed.setdefault(id(place.node), path)
            if first != path:
                repeated[path] = first
                continue
        if path != place.path:
            layout.tags[path] = place.node.cls.__name__
        for found, field in _fields(place.node, path):
            paths.add(found)
            waiting.append(_Place(field.type, found, followed))
            if found.endswith("="):
                layout.places[found] = field.encode_name
            text = default_text(field)
            if text is not None:
                defaults[found] = text
                if may_be_left_out(place.node, field):
                    layout.absent[found] = text
    layout.sets.extend(sorted(sets))
    return StoreFields(frozenset(paths), dropped, repeated, layout, defaults)


def _parts(place: _Place) -> Iterator[_Place]:
    node, path, followed = place
    match node:
        case inspect.Metadata():
            yield _Place(node.type, path, followed)
        case inspect.UnionType():
            shared = {} if followed is None else followed
            yield from (_Place(member, path, shared) for member in node.types)
        case inspect.DictType(value_type=inspect.AnyType()):
            return
        case inspect.DictType():
            yield _Place(node.value_type, f"{path}{{}}", followed)
        case inspect.TupleType():
            for number, item in enumerate(node.item_types):
                yield _Place(item, f"{path}[{number}]", followed)
        case inspect.CollectionType():
            yield _Place(node.item_type, f"{path}[]", followed)
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
        raise UsageError(f"MapState: dropped={dropped!r} is not a sequence of names", hint='use `dropped=("email",)`')
    names = tuple(dropped)
    if not all(isinstance(each, str) and each for each in names):
        raise UsageError(
            f"MapState: dropped={names!r} has something else than names of fields", hint='use `dropped=("email",)`'
        )
    return names

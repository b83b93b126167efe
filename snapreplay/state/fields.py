"""The fields that stored values have, as the code declares them and as the log records them. Pure.

msgspec passes over what a type does not declare, so code that does not know a field would drop it with the next write
of the value; and a field that is not stored gets its default. Digests cannot tell: they prove the bytes. So every
increment records the fields of the code that wrote it, and a recovery compares them before the first record.

A path leads to a field: `email`, `address.zip`, `lines[].sku`, `<card>.number` in a Struct with a tag, `0=` in
one that is stored as an array. `*` stands for any field: of a dict, or of a value without a declared type. A `-` in
front says that the field was dropped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec import inspect

from snapreplay.errors import StopError, UsageError
from snapreplay.state.canonical import nodes_in
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.layout import Layout, default_text, may_be_left_out, members_of

DROPPED = "-"
ANY = "*"

Object = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)

StoredFields = Mapping[str, Collection[str]]
"""Store → the paths of its values."""


class StoreFields(msgspec.Struct, frozen=True):
    """The fields of one store of an app.

    Attributes:
        dropped: paths whose stored values may be lost.
        repeated: place of a recursive type where it is not followed → the place where it is.
        layout: what decides their meaning, as an increment records it.
        defaults: field that a stored value need not have → what it is then, see `Layout.absent`.
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


class UnknownFields(StopError):
    """A refusal: stored values have a field that this code does not know, or lack one that it has.

    Safe: The partition stops before this code writes anything, and what is stored stays as it is.
    """


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
        raise UsageError(f"MapState: dropped={dropped!r} is no sequence of names", hint='use `dropped=("email",)`')
    names = tuple(dropped)
    if not all(isinstance(each, str) and each for each in names):
        raise UsageError(
            f"MapState: dropped={names!r} has something else than names of fields", hint='use `dropped=("email",)`'
        )
    return names


def recorded_after(recorded: StoredFields, declared: Mapping[str, StoreFields]) -> dict[str, list[str]]:
    """Return what the next increment records: the fields of this code, and those that were dropped until now."""
    found = {name: list(paths) for name, paths in recorded.items() if name not in declared}
    for name, fields in declared.items():
        before = recorded.get(name, ())
        gone = {path for path in before if not path.startswith(DROPPED)}
        dropped = {f"{DROPPED}{path}" for path in gone if not _covers(fields, path)}
        dropped |= {path for path in before if path.startswith(DROPPED)}
        kept = (path for path in dropped if fields.at(path[1:]) not in fields.paths)
        paths = sorted((*fields.paths, *kept))
        if paths:
            found[name] = paths
    return dict(sorted(found.items()))


def in_entries(recorded: StoredFields, counts: Mapping[str, int]) -> StoredFields:
    """Return what is recorded of the stores that have entries: without a value, none can have an unknown field.
    `counts`: store → number of entries."""
    return {store: paths for store, paths in recorded.items() if counts.get(store)}


def refuse_fields(recorded: StoredFields, declared: Mapping[str, StoreFields], by: str) -> UnknownFields | None:
    """Say why this code must not go on with values that have the recorded fields; None: it may.

    Args:
        recorded: see `in_entries`.
        by: the app version that recorded them.
    """
    for name, fields in declared.items():
        before = recorded.get(name, ())
        unknown = [
            path
            for path in before
            if not path.startswith(DROPPED) and not _covers(fields, path) and not is_below(path, fields.dropped)
        ]
        if unknown:
            return _unknown(name, _topmost(unknown), by)
        missing = [
            path[1:]
            for path in before
            if path.startswith(DROPPED)
            and fields.at(path[1:]) in fields.paths
            and not is_below(path[1:], fields.dropped)
        ]
        if missing:
            return _missing(name, _topmost(missing), by)
    return None


def _covers(fields: StoreFields, path: str) -> bool:
    """Say whether code with these fields keeps the field: it has it, or keeps whatever there is in its place."""
    paths, path = fields.paths, fields.at(path)
    tops = [each.removesuffix(ANY).removesuffix(".") for each in paths if last_name(each) == ANY]
    return path in paths or any(_keeps(top, paths, path) for top in tops)


def _keeps(top: str, paths: Collection[str], path: str) -> bool:
    """Say whether what keeps any field in its place keeps this one, too. The objects in a dict keep only their own."""
    values = f"{top}{{}}"
    if path.startswith(values) and any(each.startswith(values) for each in paths):
        return False
    return not top or is_below(path, [top])


def is_below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith((f"{top}.", f"{top}[", f"{top}{{", f"{top}<")) for top in tops)


def _topmost(paths: list[str]) -> list[str]:
    return [each for each in paths if not is_below(each, [top for top in paths if top != each])]


def place_of_store(store: str) -> str:
    return "state" if store == DEFAULT_STORE else f"state.{store}"


def _unknown(store: str, paths: list[str], by: str) -> UnknownFields:
    place, names = place_of_store(store), ", ".join(map(repr, paths))
    which = "any field" if paths == [ANY] else f"the field{'s'[: len(paths) - 1]} {names}"
    is_dict = all(last_name(path) == ANY for path in paths)
    keep = "declare a `dict` there" if is_dict else "declare the field too, with a default"
    kept = next((name for path in paths if (name := _stored_name(path))), None)
    renamed = (
        ""
        if kept is None
        else f' If a field was renamed, keep its stored name: `new: str = msgspec.field(name="{kept}")`.'
    )
    return UnknownFields(
        f"values in {place} may have {which}, as app version {by} recorded, which this code does not know: it would"
        " drop what is stored there",
        hint=f"nothing is lost: {keep}; or deploy the version that has it again."
        f"{renamed} If it is not needed any more, say so:"
        f" `MapState(…, dropped=({_listed(paths)}))`",
        store=store,
        fields=paths,
    )


def _stored_name(path: str) -> str | None:
    """Return the name under which the object itself has the field. None: it has no name there."""
    name = last_name(path)
    return None if name == ANY or name.endswith("=") else name


def last_name(path: str) -> str:
    return re.split(r"[.\]}>]", path)[-1]


def _missing(store: str, paths: list[str], by: str) -> UnknownFields:
    place, names = place_of_store(store), ", ".join(map(repr, paths))
    return UnknownFields(
        f"values in {place} may lack {names}, which app version {by} does not have: this code would begin with the"
        " default in each of them",
        hint="deploy the later version again; or give the field another name. If the default is"
        f" right for the values written meanwhile, say so: `MapState(…, dropped=({_listed(paths)}))`",
        store=store,
        fields=paths,
    )


def _listed(paths: list[str]) -> str:
    return "".join(f'"{path}", ' for path in paths).strip()

"""Compares values with what they read back as, and finds objects that they share. Pure.

Many values are compared at once, by columns: that costs a tenth of what it costs part by part. Only if
something is wrong, the place is looked for.
"""

from __future__ import annotations

import datetime
import decimal
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain, compress, islice, repeat
from operator import attrgetter, is_
from typing import Any

import msgspec

from snapreplay.state.round_trip import SCALARS, field_names, is_frozen, parts_in, same
from snapreplay.state.steps import Steps

LEVELS_MAX = 800
"""Of values in each other. Decoders stop at Python's recursion limit, 1,000 less the calls under way: the bound is
below it, so that what is read and stored at one place is read at every other."""

PARTS = 512
"""Parts compared in one step: 0.1 ms, or 1 ms if all of them are datetimes or Decimals."""

_IMMUTABLE = (
    *SCALARS,
    tuple,
    frozenset,
    Enum,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    uuid.UUID,
    msgspec.Raw,
    msgspec.UnsetType,
    msgspec.msgpack.Ext,
)
_MISSING = object()

Place = tuple[Any, str]
"""The key of a value, and the path in it ("" for the value itself)."""

Columns = tuple[Iterator[Any], Iterator[Any]]
"""Parts, and what they read back as, in the same order."""


class MutableObjects:
    """Counts the mutable objects in many values, each as often as it was met."""

    def __init__(self) -> None:
        self._count = 0
        self._ids: set[int] = set()

    def add(self, objects: Sequence[object]) -> None:
        self._count += len(objects)
        self._ids.update(map(id, objects))

    @property
    def met_again(self) -> bool:
        """Whether one of them was added twice; the objects must have been kept alive."""
        return len(self._ids) < self._count


def comparing(
    values: Iterable[object], backs: Iterable[object], objects: MutableObjects, levels_max: int = sys.maxsize
) -> Steps[bool]:
    """Say whether all values are what they read back as, through and through. Adds all mutable objects in them to
    `objects`.

    Scalars whose types agree are not compared, because msgpack keeps them. What is nested deeper than `levels_max` does
    not count as read back.
    """
    rest: list[tuple[Iterator[Any], Iterator[Any], int]] = [(iter(values), iter(backs), 0)]
    while rest:
        column, column_back, level = rest[-1]
        if level > levels_max:
            return False
        parts, parts_back = list(islice(column, PARTS)), list(islice(column_back, PARTS))
        if len(parts) < PARTS:
            rest.pop()
        kinds = list(map(type, parts))
        if kinds != list(map(type, parts_back)):
            return False
        different = set(kinds)
        for cls in different - SCALARS:
            group, group_back = parts, parts_back
            if len(different) > 1:
                group = list(compress(parts, map(is_, kinds, repeat(cls))))
                group_back = list(compress(parts_back, map(is_, kinds, repeat(cls))))
            kind = _kind(cls)
            if not kind.alike(group, group_back):
                return False
            if kind.mutable:
                objects.add(group)
            if kind.inside is not None:
                rest.append((*kind.inside(group, group_back), level + 1))
        yield
    return True


def nested_deeper(value: object, levels: int) -> bool:
    """Say whether values are in each other over more than so many levels."""
    column = [value]
    for _ in range(levels):
        column = [part for each in column if type(each) not in SCALARS for _, part in parts_in(each)]
        if not column:
            return False
    kinds: set[type] = set(map(type, column))
    return any(_kind(each).inside is not None for each in kinds)


def differing(value: object, back: object) -> Steps[tuple[str, object, object] | None]:
    """Return (path in the value, part, what it reads back as) of the first part that differs, or None."""
    waiting, number = [iter([("", value, back)])], 0
    while waiting:
        for path, part, part_back in waiting[-1]:
            number += 1
            if number % PARTS == 0:
                yield
            if not same(part, part_back):
                return path, part, part_back
            if type(part) not in SCALARS:
                waiting.append(_children(path, part, part_back))
                break
        else:
            waiting.pop()
    return None


def met_twice(values: Mapping[Any, Any]) -> Steps[tuple[Place, Place] | None]:
    """Return the two places of a mutable object that is in these values twice, the later place first, or None."""
    owners: dict[int, Place] = {}
    for number, (key, value) in enumerate(values.items()):
        if number % PARTS == 0:
            yield
        if _is_mutable(value) and owners.setdefault(id(value), (key, "")) != (key, ""):
            return (key, ""), owners[id(value)]
    number = 0
    for key, value in values.items():
        for path, part in _parts_inside(value):
            number += 1
            if number % PARTS == 0:
                yield
            place = (key, path)
            if _is_mutable(part) and owners.setdefault(id(part), place) != place:
                return place, owners[id(part)]
    return None


# --------------------------------------------------------------------- by columns


class _Kind(msgspec.Struct, frozen=True):
    """The comparison of values of one class.

    Attributes:
        alike: whether they are the same, apart from what is inside them.
        inside: gives the parts of all of them; None if there is no inside.
    """

    mutable: bool
    alike: Callable[[Sequence[Any], Sequence[Any]], bool]
    inside: Callable[[Sequence[Any], Sequence[Any]], Columns] | None = None


@lru_cache(maxsize=1024)
def _kind(cls: type) -> _Kind:
    mutable = not (issubclass(cls, _IMMUTABLE) or is_frozen(cls))
    if issubclass(cls, dict):
        return _Kind(mutable, _sizes_agree, _in_dicts)
    if issubclass(cls, list | tuple):
        return _Kind(
            mutable, _sizes_agree, lambda group, backs: (chain.from_iterable(group), chain.from_iterable(backs))
        )
    if issubclass(cls, set | frozenset):
        return _Kind(
            mutable,
            _sizes_agree,
            lambda group, backs: (chain.from_iterable(group), chain.from_iterable(map(_counterparts, group, backs))),
        )
    names = field_names(cls)
    if names is None:
        return _Kind(mutable, lambda group, backs: all(map(same, group, backs)))
    if not names:
        return _Kind(mutable, _surely)
    fields = _fields_getter(names)
    # Only code of the class can change a scalar on its way: `__post_init__`, or a property of a dataclass.
    plain = issubclass(cls, msgspec.Struct) and not hasattr(cls, "__post_init__")

    def scalars_agree(group: Sequence[Any], backs: Sequence[Any]) -> bool:
        pairs = zip(fields(group), fields(backs), strict=True)
        return all(type(part) not in SCALARS or same(part, back) for part, back in pairs)

    alike = _surely if plain else scalars_agree
    return _Kind(mutable, alike, lambda group, backs: (fields(group), fields(backs)))


def _is_mutable(value: object) -> bool:
    cls: type = type(value)
    return _kind(cls).mutable


def _fields_getter(names: Sequence[str]) -> Callable[[Sequence[Any]], Iterator[Any]]:
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda group: map(get, group)
    return lambda group: chain.from_iterable(map(get, group))


def _surely(_: Sequence[Any], __: Sequence[Any]) -> bool:
    return True


def _sizes_agree(group: Sequence[Any], backs: Sequence[Any]) -> bool:
    return list(map(len, group)) == list(map(len, backs))


def _in_dicts(group: Sequence[Any], backs: Sequence[Any]) -> Columns:
    """Return the keys, each of which must be exactly a str, and the values."""
    return (
        chain.from_iterable(chain(one, one.values()) for one in group),
        chain.from_iterable(
            chain(map(str, one), map(back.get, one, repeat(_MISSING))) for one, back in zip(group, backs, strict=True)
        ),
    )


def _counterparts(elements: Iterable[Any], backs: Iterable[Any]) -> Iterator[Any]:
    back_of = {back: back for back in backs}
    return map(back_of.get, elements, repeat(_MISSING))


# --------------------------------------------------------------------- one by one, to name the place


def _parts_inside(value: object) -> Iterator[tuple[str, Any]]:
    rest = [("", parts_in(value))]
    while rest:
        path, parts = rest[-1]
        for name, part in parts:
            yield path + name, part
            if type(part) not in SCALARS:
                rest.append((path + name, parts_in(part)))
                break
        else:
            rest.pop()


def _children(path: str, value: Any, back: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each part, the part, and what it reads back as."""
    backs: Iterable[Any] = back
    if isinstance(value, dict):
        backs = (back.get(key, _MISSING) for key in value)
    elif isinstance(value, set | frozenset):
        backs = _counterparts(value, back)
    elif not isinstance(value, list | tuple):
        backs = (part for _, part in parts_in(back))
    return ((path + name, part, part_back) for (name, part), part_back in zip(parts_in(value), backs, strict=False))

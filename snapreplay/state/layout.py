"""What decides the meaning of a stored value besides its bytes: the order of the fields of an array, the default of a
field that is not stored, the names of the members of an enum. Pure.

Two versions of an app may read the same bytes without an error and take them for different values. So every increment
records the layout of the code that wrote it, beside the fields, and a recovery compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import inspect

from snapreplay.errors import StopError
from snapreplay.interrupts import of_a_signal

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


class MeaningChanged(StopError):
    """A refusal: this code would read stored values as something else than the code that wrote them.

    Safe: The partition stops before this code uses a value, and what is stored stays as it is.
    """


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
    except BaseException as error:  # whatever the user's function raises: without the field, nothing can be read
        if of_a_signal(error):
            raise
        return None


def _text(value: object) -> str:
    try:
        text = _json(value).decode()
    except (TypeError, ValueError):  # a type that JSON cannot hold, such as a mark of its own: `MISSING = object()`
        text = _ADDRESS.sub("", repr(value))
    return text if len(text) <= TEXT_MAX else f"sha256:{sha256(text.encode()).hexdigest()[:16]}"


def same_default(one: str, other: str | None) -> bool:
    """Say whether two defaults are the same value: 0 and 0.0 are."""
    if one == other:
        return True
    try:
        return other is not None and bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except msgspec.DecodeError:
        return False


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


def differing_members(before: Layout, now: Layout) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Yield path, value, the names before and the names now, where a value has no name of before any more."""
    for path, values in before.members.items():
        declared = now.members.get(path, {})
        for value, names in values.items():
            found = declared.get(value)
            if found is not None and set(names).isdisjoint(found):
                yield path, value, names, found


def exchanged_tags(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield path, class before and class now, where a class that both know has another tag. A class may be renamed."""
    known_before, known_now = set(before.values()), set(now.values())
    for path, name in before.items():
        found = now.get(path)
        if found not in (None, name) and (name in known_now or found in known_before):
            yield path, name, found

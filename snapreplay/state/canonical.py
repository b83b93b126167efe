"""The encoding of values: equal states as equal bytes, and a value that is read back as it was, order included. Pure.

A dict keeps the order in which it was made: msgpack has it in that order, and reads it so. That order follows from the
records, so it is the same in every replay. A set has no order that two processes would share: its members are sorted.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

_in_order = msgspec.msgpack.Encoder().encode
_sorted = msgspec.msgpack.Encoder(order="deterministic").encode


def encoder_of(node: inspect.Type) -> Callable[[Any], bytes]:
    """Return what encodes values of this declared type."""
    kinds = {type(each) for each in nodes_in(node)}
    if not kinds & {inspect.SetType, inspect.FrozenSetType}:
        return _in_order
    if not kinds & {inspect.DictType, inspect.TypedDictType, inspect.AnyType}:
        return _sorted
    return lambda value: _in_order(_with_lists(value))


def nodes_in(node: inspect.Type | Iterable[inspect.Field]) -> Iterator[inspect.Type]:
    """Yield a declared type, or those of fields, and all types in it, each object once."""
    waiting: list[Any] = [node]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple | list):
            waiting += each
        elif isinstance(each, inspect.Field):
            waiting.append(each.type)
        elif isinstance(each, inspect.Type) and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [getattr(each, name) for name in each.__struct_fields__]


def _with_lists(value: Any) -> Any:
    """Return the value with a sorted list for each set, which msgpack writes in the same way."""
    if isinstance(value, set | frozenset):
        return sorted(map(_with_lists, value), key=_in_order)
    if isinstance(value, dict):
        return {key: _with_lists(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_lists(each) for each in value]
    changed: Any = value
    if isinstance(value, msgspec.Struct):
        changed = copy.copy(value)
        for name in value.__struct_fields__:
            msgspec.structs.force_setattr(changed, name, _with_lists(getattr(value, name)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):  # msgspec leaves out what is not set
                object.__setattr__(changed, field.name, _with_lists(getattr(value, field.name)))
    return changed

"""The encoding of values: equal states as equal bytes, and a value that is read back as it was, order included; and
defaults that are not always the same: a clock, a random number, a counter, the environment. Pure.

A dict keeps the order in which it was made: msgpack has it in that order, and reads it so. That order follows from the
records, so it is the same in every replay. A set has no order that two processes would share: its members are sorted.

A default must be the same at each call: a stored value without the field would get another one at each load, and a
record without it in each replay. So a function that makes a default is called 16 times in a row. A clock that does not
advance meanwhile, such as `date.today`, is found by its name; so is the environment.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from dis import get_instructions
from functools import partial
from types import CodeType, ModuleType
from typing import Any

import msgspec
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.interrupts import of_a_signal

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


_CALLS = 16
"""Some calls in a row of `time.time` return the same float."""
_NAMES = frozenset(
    {"today", "now", "utcnow", "environ", "getenv", "getpid", "gethostname", "urandom", "uuid1", "uuid4"}
)
_MODULES = frozenset({"time", "random", "secrets"})
_encode = msgspec.json.encode
HINT = "give it a constant default, and set it in the handler: `record.timestamp_ms`, `record.random`"


def is_unsteady(make: Callable[[], Any]) -> bool:
    """Say whether calls return different values, now or in another process."""
    if _is_named(make):
        return True
    try:
        first, *others = [make() for _ in range(_CALLS)]
        return any(bool(first != each) and _encode(first) != _encode(each) for each in others)
    except BaseException as error:  # whatever the user's function raises: it raises it where it is used
        if of_a_signal(error):
            raise
        return False


def _is_named(make: Any) -> bool:
    """Say whether this is a clock, a random number or the environment, or its own code names one."""
    while isinstance(make, partial):
        make = make.func
    code = getattr(make, "__code__", None)
    if isinstance(code, CodeType):  # the globals by value, because `time` may be imported by another name
        names = set(code.co_names)
        used = [make.__globals__.get(each.argval) for each in get_instructions(code) if each.opname == "LOAD_GLOBAL"]
    else:
        names, used = {getattr(make, "__name__", "")}, []
    owners = [getattr(each, "__self__", None) for each in (make, *used)]
    return not _NAMES.isdisjoint(names) or any(
        each is os.environ or (isinstance(each, ModuleType) and each.__name__ in _MODULES) for each in used + owners
    )


def unsteady_default(node: inspect.Type) -> str | None:
    """Name a field in a declared type whose default is not always the same: "'id' of Order"."""
    for each in nodes_in(node):
        cls: Any = getattr(each, "cls", None)
        for field in getattr(each, "fields", ()):
            factory = getattr(field, "default_factory", msgspec.NODEFAULT)
            if factory is not msgspec.NODEFAULT and is_unsteady(factory):
                return f"{field.name!r} of {cls.__name__}"
    return None


def refuse_unsteady(node: inspect.Type) -> None:
    """Raise UsageError if stored values of this type could be others at each load."""
    field = unsteady_default(node)
    if field is not None:
        raise UsageError(
            f"MapState: the default of {field} is not always the same: a value that was stored without the field"
            " would be a different one at each load",
            hint=HINT,
        )

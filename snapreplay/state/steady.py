"""Defaults that are not always the same: a clock, a random number, a counter, the environment. Pure.

A default must be the same at each call: a stored value without the field would get another one at each load, and a
record without it in each replay. So a function that makes a default is called 16 times in a row. A clock that does not
advance meanwhile, such as `date.today`, is found by its name; so is the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dis import get_instructions
from functools import partial
from types import CodeType, ModuleType
from typing import Any

import msgspec
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.canonical import nodes_in

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
    except BaseException as error:  # the user's function may raise anything, and will where it is used
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

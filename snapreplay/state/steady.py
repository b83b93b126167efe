"""The check that a default is the same at each call. One from a clock, a random number or a counter is not. Pure.

A stored value without the field would get another default at each load, and a record without it in each replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.canonical import nodes_in
from snapreplay.state.causes import unsteady_call

_CONSTANTS = (list, dict, set, frozenset, tuple, bytearray, str, bytes, int, float, bool)
HINT = "give it a constant default, and set it in the handler: `record.timestamp_ms`, `record.random`"


class UnsteadyDefault(NamedTuple):
    """A default that is another one at each call, as messages name it: "'id' of Order", "calls uuid.uuid4"."""

    field: str
    why: str


def unsteady(make: Callable[[], Any]) -> str | None:
    """Say why what `make` returns is not the same at each call; None: it seems to be. Calls it."""
    if any(make is each for each in _CONSTANTS):
        return None
    called = unsteady_call(make)
    if called is not None:
        return f"calls {called}"
    try:
        one, other = make(), make()
        differ = bool(one != other) and msgspec.json.encode(one) != msgspec.json.encode(other)
    except BaseException as error:  # whatever the user's function raises: it raises it where it is used
        if of_a_signal(error):
            raise
        return None
    return "gives another value at each call" if differ else None


def unsteady_default(node: inspect.Type) -> UnsteadyDefault | None:
    """Find a field in a declared type whose default is not the same at each call."""
    for each in nodes_in(node):
        cls: Any = getattr(each, "cls", None)
        for field in getattr(each, "fields", ()):
            factory = getattr(field, "default_factory", msgspec.NODEFAULT)
            why = None if factory is msgspec.NODEFAULT else unsteady(factory)
            if why is not None:
                return UnsteadyDefault(f"{field.name!r} of {cls.__name__}", why)
    return None


def refuse_unsteady(node: inspect.Type) -> None:
    """Raise UsageError if stored values of this type could be others at each load."""
    found = unsteady_default(node)
    if found is not None:
        raise UsageError(
            f"MapState: the default of {found.field} {found.why}: a value that was stored without the field would be"
            " a different one at each load",
            hint=HINT,
        )

"""Defaults that differ at each call: a clock, a random number, a counter. Pure.

A default must be the same at each call: a stored value without the field would get another one at each load, and a
record without it in each replay. So a function that makes a default is called some times. That finds no clock that
stands still meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.canonical import nodes_in

_CALLS = 16
"""Some calls in a row of `time.time` return the same float."""
_encode = msgspec.json.encode
HINT = "give it a constant default, and set it in the handler: `record.timestamp_ms`, `record.random`"


def is_unsteady(make: Callable[[], Any]) -> bool:
    """Say whether calls return different values."""
    try:
        first, *others = [make() for _ in range(_CALLS)]
        return any(bool(first != each) and _encode(first) != _encode(each) for each in others)
    except BaseException as error:  # whatever the user's function raises: it raises it where it is used
        if of_a_signal(error):
            raise
        return False


def unsteady_default(node: inspect.Type) -> str | None:
    """Name a field in a declared type whose default differs at each call: "'id' of Order"."""
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
            f"MapState: the default of {field} differs at each call: a value that was stored without the field would"
            " be a different one at each load",
            hint=HINT,
        )

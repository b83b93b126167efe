"""The windows that a timestamp lies in, for rules that `App.window` does not have. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from snapreplay.errors import UsageError
from snapreplay.times import suspected_unit

__all__ = ["Window", "hopping", "tumbling"]


class Window(NamedTuple):
    """Milliseconds since the epoch, half-open: `end_ms` is not in it."""

    start_ms: int
    end_ms: int


def tumbling(at_ms: int, size_ms: int) -> Window:
    """Return the window that `at_ms` lies in; windows begin at multiples of `size_ms`.

    Raises:
        UsageError: a size below 1, or `at_ms` is no int or looks like seconds.
    """
    _check(at_ms, size_ms=size_ms)
    start_ms = at_ms - at_ms % size_ms
    return Window(start_ms, start_ms + size_ms)


def hopping(at_ms: int, size_ms: int, every_ms: int) -> list[Window]:
    """Return the windows that `at_ms` lies in, the oldest first; one begins at each multiple of `every_ms`.

    Raises:
        UsageError: as `tumbling`, or a distance below 1 or above the size, which would leave gaps.
    """
    _check(at_ms, size_ms=size_ms, every_ms=every_ms)
    if every_ms > size_ms:
        raise UsageError(f"hopping: every_ms={every_ms} is more than size_ms={size_ms}")
    last_ms = at_ms - at_ms % every_ms
    first_ms = last_ms - (size_ms - 1 - at_ms % every_ms) // every_ms * every_ms
    return [Window(start, start + size_ms) for start in range(first_ms, last_ms + 1, every_ms)]


def _check(at_ms: int, **sizes_ms: int) -> None:
    unit = suspected_unit(at_ms) if isinstance(at_ms, int | float) and math.isfinite(at_ms) else ""
    if type(at_ms) is not int or unit.startswith("seconds"):
        seems = f": it looks like {unit}" if unit else ""
        raise UsageError(
            f"at_ms={at_ms!r} is not a time in milliseconds since the epoch{seems}",
            hint="use an int of milliseconds such as `record.timestamp_ms`; of seconds, `int(seconds * 1000)`",
        )
    check_durations(**sizes_ms)


def check_durations(least_ms: int = 1, **durations_ms: int) -> None:
    """Raise UsageError if one is no number of milliseconds, or below the least."""
    for name, duration_ms in durations_ms.items():
        if type(duration_ms) is not int or duration_ms < least_ms:
            raise UsageError(f"{name}={duration_ms!r} is not a number of milliseconds from {least_ms} on")

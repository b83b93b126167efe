"""Windows of stream time, as keys and timers: which windows a timestamp lies in. Pure.

window = tumbling(record.timestamp_ms, 60_000)
state[record.key, window.start_ms] += 1
state.schedule((record.key, window.start_ms), window.end_ms, timer="close")
"""

from __future__ import annotations

import math
from typing import NamedTuple

from snapreplay.errors import UsageError
from snapreplay.times import suspected_unit

__all__ = ["Window", "hopping", "session", "tumbling"]


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


def session(at_ms: int, gap_ms: int, current: Window | None = None) -> Window:
    """Return the session that `at_ms` belongs to: `current`, made longer if need be, or a new one. A session ends when
    nothing has come for `gap_ms`. If its end is not after stream time, the record is too late: it must not replace
    `current`, which may be later.

    Raises:
        UsageError: a gap below 1, or as `tumbling`.
    """
    _check(at_ms, gap_ms=gap_ms)
    if current is None or not current.start_ms - gap_ms < at_ms < current.end_ms:
        return Window(at_ms, at_ms + gap_ms)
    return Window(min(current.start_ms, at_ms), max(current.end_ms, at_ms + gap_ms))


def _check(at_ms: int, **sizes_ms: int) -> None:
    unit = suspected_unit(at_ms) if isinstance(at_ms, int | float) and math.isfinite(at_ms) else ""
    if type(at_ms) is not int or unit.startswith("seconds"):
        seems = f": it looks like {unit}" if unit else ""
        raise UsageError(
            f"at_ms={at_ms!r} is not a time in milliseconds since the epoch{seems}",
            hint="use an int of milliseconds such as `record.timestamp_ms`; of seconds, `int(seconds * 1000)`",
        )
    for name, size_ms in sizes_ms.items():
        if type(size_ms) is not int or size_ms < 1:
            raise UsageError(f"{name}={size_ms!r} is not a number of milliseconds from 1 on")

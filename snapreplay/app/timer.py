"""A timer as its handler receives it, and how an app declares one. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.app.out import Out

K = TypeVar("K")
S = TypeVar("S")


class Timer(msgspec.Struct, Generic[K], frozen=True, gc=False):
    """A timer that fires. Everything in it is the same in every replay.

    Attributes:
        name: as it was declared.
        store: the store of the key; "default" if the state is one map, empty for a periodic timer.
        key: None for a periodic timer.
        at_ms: the time for which it was set; for a periodic timer, the last multiple of its period.
    """

    app_id: str
    partition: int
    name: str
    store: str
    key: K
    at_ms: int

    @property
    def id(self) -> str:
        """Its name in messages: "reminder of items['ada'] at 1700000000000"."""
        of = f" of {self.store}[{self.key!r}]" if self.store else ""
        return f"{self.name}{of} at {self.at_ms}"

    @property
    def output_key(self) -> bytes | None:
        """The key (of a tuple, the first part), encoded by `utf8`, `raw` or `i64`. An output with this key stays in
        the partition of the state."""
        key: object = self.key[0] if isinstance(self.key, tuple) else self.key
        if isinstance(key, str):
            return key.encode(errors="surrogatepass")
        if isinstance(key, int):
            return key.to_bytes(8, "big", signed=key < 0)
        return key if isinstance(key, bytes) else None

    @property
    def random(self) -> random.Random:
        """As `Record.random`, seeded by app and timer."""
        return random.Random(f"{self.app_id}/{self.partition}/{self.id}")


def name_in(timer_id: str) -> str:
    """Return the timer's name, which begins a `Timer.id` and contains no blank."""
    return timer_id.partition(" ")[0]


TimerHandler = Callable[[Timer[Any], S, "Out"], None]


class TimerSpec(NamedTuple):
    """A declared timer. `every_ms`: None for a timer of keys. `closes_in`: the store whose entry goes with the timer,
    also when its handler fails; empty: the entry is the handler's business."""

    function: TimerHandler[Any]
    every_ms: int | None
    closes_in: str = ""


def check_period(every_ms: object) -> None:
    """Raise UsageError if it is neither None nor a number of milliseconds from 1 on."""
    if every_ms is not None and (type(every_ms) is not int or every_ms < 1):
        raise UsageError(
            f"every_ms={every_ms!r} is not a number of milliseconds from 1 on",
            hint='a minute is `@app.timer("report", every_ms=60_000)`',
        )

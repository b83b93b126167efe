"""Hints about a state of several stores, expiry and timers: what is refused, then the same as the hint says, which is
taken."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.state.stores import store_of
from snapreplay.testing import Harness, record
from tests.hints.following import refused_then_taken

IN = Topic("in")
ANYTHING: Any = 5


def timed(*names: str, does: Callable[[Any], None] = lambda state: None) -> App[Any]:
    """An app with timers of these names; its handler does something to the state."""
    app: App[Any] = App("timed", inputs=[IN], state=lambda: MapState(str, int))
    app.handler(IN)(lambda record, state, out: does(state))
    for name in names:
        app.timer(name)(nothing)
    return app


def nothing(timer: Any, state: Any, out: Any) -> None:
    pass


def fed(*names: str, does: Callable[[Any], None]) -> None:
    Harness(timed(*names, does=does)).feed(IN, key="k", value=1)


def pending(*names: str) -> None:
    """A timer named `gone` is due, in an app with timers of these names."""
    app = timed("gone", does=lambda state: state.schedule("k", 9, timer="gone"))
    harness = Harness(app)
    harness.feed(IN, key="k", value=1, timestamp_ms=1)
    harness.snapshot()
    del app.timers["gone"]
    for name in names:
        app.timer(name)(nothing)
    harness.crash()
    harness.advance_time(9)


class Mine(MapState[str, int]):
    pass


NAMELESS: Any = nothing


def sets(at_ms: Any, timer: str = "a") -> Callable[[Any], None]:
    return lambda state: state.schedule("k", at_ms, timer=timer)


ONE_MAP = MapState(str, int)


def stores_made() -> Any:
    """A state that a partition has."""
    made = Stores(n=MapState(str, int))
    store_of(made)
    return made


CASES: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
    "a ttl": (
        "an hour is ttl_ms=3_600_000", lambda: MapState(str, int, ttl_ms=0),
        lambda: MapState(str, int, ttl_ms=3_600_000),
    ),
    "what refreshes": (
        'use refresh="read"', lambda: MapState(str, int, ttl_ms=1, refresh=ANYTHING),
        lambda: MapState(str, int, ttl_ms=1, refresh="read"),
    ),
    "a name of a timer": (
        '`@app.timer("reminder")`', lambda: timed().timer("a b")(nothing), lambda: timed().timer("reminder")(nothing),
    ),
    "a decorator without a name": (
        'name it, `@app.timer("reminder")`', lambda: timed().timer(NAMELESS),
        lambda: timed().timer("reminder")(nothing),
    ),
    "a ttl of MapState's own": (
        "use MapState itself", lambda: Mine(str, int, ttl_ms=5), lambda: MapState(str, int, ttl_ms=5),
    ),
    "the time of a made record": (
        "use an int from 0 on, such as `int(time.time() * 1000)`", lambda: record(IN, timestamp_ms=-ANYTHING),
        lambda: record(IN, timestamp_ms=int(time.time() * 1000)),
    ),
    "a period": (
        "every_ms=60_000", lambda: timed().timer("a", every_ms=0)(nothing),
        lambda: timed().timer("a", every_ms=60_000)(nothing),
    ),
    "a time": ("use an int from 0 on", lambda: fed("a", does=sets(-1)), lambda: fed("a", does=sets(1))),
    "timers at all": ('@app.timer("…")', lambda: fed(does=sets(1)), lambda: fed("a", does=sets(1))),
    "which timer": (
        'use timer="…" with the name of an `@app.timer("…")`: a, b', lambda: fed("a", "b", does=sets(1, timer="c")),
        lambda: fed("a", "b", does=sets(1, timer="a")),
    ),
    "a handler for what is pending": (
        '`@app.timer("gone")`; one that does nothing discards them', lambda: pending("other"), lambda: pending("gone"),
    ),
    "what is a store": (
        "keep it in a MapState", lambda: Stores(n=ANYTHING), lambda: Stores(n=MapState(str, int)),
    ),
    "a store's name": (
        "use up to 64 letters, digits and underscores", lambda: Stores(_n=MapState(str, int)),
        lambda: Stores(n=MapState(str, int)),
    ),
    "a store for good": (
        "`state.n.clear()`", lambda: setattr(stores_made(), "n", MapState(str, int)),
        lambda: stores_made().n.update(x=1),
    ),
    "a store that stays": (
        "`state.n.clear()` deletes", lambda: delattr(stores_made(), "n"), lambda: stores_made().n.update(x=1),
    ),
    "a store at least": (
        "Stores(items=MapState(str, dict))", lambda: store_of(Stores()),
        lambda: store_of(Stores(items=MapState(str, dict))),
    ),
    "a map for each store": (
        "make one for each", lambda: store_of(Stores(a=ONE_MAP, b=ONE_MAP)),
        lambda: store_of(Stores(a=MapState(str, int), b=MapState(str, int))),
    ),
    "a store to retire": (
        "that the app had before and does not have any more",
        lambda: store_of(Stores(a=MapState(str, int), retired=("a",))),
        lambda: store_of(Stores(a=MapState(str, int), retired=("b",))),
    ),
    "names of retired stores": (
        'use `retired=("offers",)`', lambda: store_of(Stores(a=MapState(str, int), retired="offers")),
        lambda: store_of(Stores(a=MapState(str, int), retired=("offers",))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_is_taken_as_the_hint_says(name: str) -> None:
    """Refused as it is, and then as the hint has it."""
    refused_then_taken(*CASES[name])

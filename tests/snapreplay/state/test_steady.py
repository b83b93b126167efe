"""Tests of what gives another result at each call: found in the code, refused as a default, named as a likely cause."""

import datetime
import itertools
import os
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import pytest

from snapreplay import App, MapState, Topic, json
from snapreplay.errors import UsageError
from snapreplay.state.steady import causes_in
from snapreplay.testing import Diverged, Harness, check, record, record_raw

SEEN: dict[str, int] = {}
LINES: list[str] = []
RATES = {"EUR": 1}
COUNTER = itertools.count()
COUNT = 0


def now() -> float:
    return time.time()


def counting() -> int:
    global COUNT  # noqa: PLW0603 - it is what is looked for
    COUNT += 1
    return COUNT


def seeing() -> None:
    SEEN["a"] = 1


def noting() -> None:
    LINES.append("a")


def importing() -> float:
    import random as dice

    return dice.random()


def in_a_set() -> list[str]:
    return list({"a", "b"})


class Table:
    """Has no truth when it is compared, as the arrays of numpy, and any attribute, as a mock."""

    def __eq__(self, other: object) -> Any:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self) -> int:
        return 1


TABLE = Table()


class Sent(msgspec.Struct):
    id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (time.time, "time.time"),
        (lambda: int(time.time_ns() / 1000), "time.time_ns"),
        (lambda: datetime.datetime.now(datetime.UTC), "datetime.now"),
        (datetime.date.today, "date.today"),
        (lambda: [uuid.uuid4().hex for _ in "ab"], "uuid.uuid4"),
        (random.random, "random.random"),
        (importing, "random.random"),
        (lambda: os.environ.get("X"), "os.environ"),
        (lambda: now() + 1, "time.time"),
        (lambda: Sent(), "uuid.uuid4, the default of 'id' in Sent"),  # noqa: PLW0108 - a call is what is looked for
        (counting, "the global COUNT, which it changes"),
        (seeing, "the global SEEN, which it may change"),
        (noting, "the global LINES, which it changes"),
        (in_a_set, "the order of a set"),
        (lambda: RATES["EUR"], None),
        (lambda: TABLE(), None),  # noqa: PLW0108 - a call is what is looked for
        (list, None),
        (lambda: {"a": 1}, None),
    ],
)
def test_what_no_argument_determines_is_found_in_the_code(function, what):
    """Also in what it calls and in what it imports; a table that is only read is no cause."""
    assert next((each.what for each in causes_in(function)), None) == what


STEADY: list[Any] = [list, dict, lambda: [9], lambda: 7, tuple]
UNSTEADY: list[Any] = [
    time.time,
    lambda: str(uuid.uuid4()),
    lambda: random.randrange(10**9),
    lambda: datetime.datetime.now(datetime.UTC),
    lambda: int(time.time()),  # two calls in one second are equal
    COUNTER.__next__,
    lambda: next(COUNTER),
]


def struct(factory: Any) -> Any:
    return msgspec.defstruct("It", [("n", int), ("made", Any, msgspec.field(default_factory=factory))])


def a_dataclass(factory: Any) -> Any:
    @dataclass
    class It:
        n: int
        made: Any = field(default_factory=factory)

    return It


@pytest.mark.parametrize("factory", UNSTEADY)
@pytest.mark.parametrize("make", [struct, a_dataclass, lambda factory: list[struct(factory)]])  # type: ignore[misc]
def test_a_stored_type_has_no_default_that_is_made_anew(factory, make):
    """Entries that lack the field would have another value at each load."""
    with pytest.raises(UsageError, match="'made' of It") as refused:
        MapState(str, make(factory))
    assert "set it in the handler" in refused.value.hint


@pytest.mark.parametrize("factory", STEADY)
def test_a_default_that_is_always_the_same_is_taken(factory):
    """It is called to find out."""
    MapState(str, struct(factory))


@pytest.mark.parametrize("default", [time.time, lambda: random.random(), lambda: now()])  # noqa: PLW0108 - as above
def test_the_default_of_a_map_is_the_same_in_each_process(default):
    """It is made once per process."""
    with pytest.raises(UsageError, match="each process would make another one"):
        MapState(str, float, default=default)


orders, shipped = Topic("orders-steady", value=json(Sent)), Topic("shipped-steady", value=json(Sent))


def test_a_record_that_lacks_a_field_made_anew_is_no_value():
    """The field is often there: such a record is decoded as ever."""
    app = App("steady", inputs=[orders], outputs=[shipped], state=lambda: MapState(str, str))

    @app.handler(orders)
    def on_order(record, state, out):
        state[record.key] = record.value.id

    harness = Harness(app)
    harness.feed(orders, key="k", value=Sent("7"))
    harness.crash()
    with pytest.raises(Exception, match="lacks a field whose default differs at each call, such as 'id' of"):
        harness.feed_raw(orders, b"k", b"{}")


class Kept:
    """What a handler keeps beside the state."""

    seen: ClassVar[dict[str, int]] = {}


def by_clock(record, state, out):
    state[record.key] = time.time()


def by_default(record, state, out):
    out.send(shipped, key=record.key, value=Sent())


def by_global(record, state, out):
    global COUNT  # noqa: PLW0603 - it is what is looked for
    COUNT += 1
    state[record.key] = float(COUNT)


@pytest.mark.parametrize(
    ("handler", "cause"),
    [
        (by_clock, "by_clock (test_steady.py:{line}) uses time.time in line {next}"),
        (by_default, "uses uuid.uuid4, the default of 'id' in Sent"),
        (by_global, "uses the global COUNT, which it changes"),
    ],
)
def test_check_names_the_likely_cause(handler, cause):
    """Beside the first record that differs."""
    line = handler.__code__.co_firstlineno
    app = App("causes", inputs=[orders], outputs=[shipped], state=lambda: MapState(str, float))
    app.handler(orders)(handler)
    with pytest.raises(Diverged, match="Likely cause: ") as diverged:
        check(app, [record(orders, key=f"k{n}", value=Sent("1")) for n in range(3)])
    assert cause.format(line=line, next=line + 1) in str(diverged.value)


def test_check_names_no_cause_where_none_is_seen():
    """An attribute of an object is not looked through."""
    app = App("no-causes", inputs=[orders], state=lambda: MapState(str, int))

    @app.handler(orders)
    def on_order(record, state, out):
        seen = Kept.seen
        seen[record.key] = seen.get(record.key, 0) + 1
        state[record.key] = seen[record.key]

    with pytest.raises(Diverged) as diverged:
        check(app, [record_raw(orders, b"k", b'{"id":"1"}')])
    assert "Likely cause" not in str(diverged.value)

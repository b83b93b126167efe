"""Tests that a default that is not always the same is refused."""

import datetime
import itertools
import os
import random
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, Topic, json
from snapreplay.errors import UsageError
from snapreplay.testing import Harness

clock = time.time
COUNTER = itertools.count()


class Sent(msgspec.Struct):
    id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))


STEADY: list[Any] = [list, dict, lambda: [9], lambda: 7, tuple, lambda: datetime.time(9), partial(list, (1,))]
UNSTEADY: list[Any] = [
    time.time,
    lambda: str(uuid.uuid4()),
    lambda: random.randrange(10**9),
    lambda: datetime.datetime.now(datetime.UTC),
    COUNTER.__next__,
    lambda: next(COUNTER),
    datetime.date.today,
    lambda: int(time.time()),
    lambda: int(clock()),
    lambda: os.environ.get("HOME", ""),
    partial(os.environ.get, "HOME"),
    partial(os.getenv, "HOME"),
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
def test_a_stored_type_has_no_default_that_is_made_again(factory, make):
    """Entries that lack the field would have another value at each load."""
    with pytest.raises(UsageError, match="'made' of It") as refused:
        MapState(str, make(factory))
    assert "set it in the handler" in refused.value.hint


@pytest.mark.parametrize("factory", STEADY)
def test_a_default_that_is_always_the_same_is_taken(factory):
    """It is called to find out."""
    MapState(str, struct(factory))


@pytest.mark.parametrize("default", [time.time, random.random, lambda: len(os.environ)])
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
    with pytest.raises(Exception, match="lacks a field whose default differs at each call, such as 'id' of Sent"):
        harness.feed_raw(orders, b"k", b"{}")

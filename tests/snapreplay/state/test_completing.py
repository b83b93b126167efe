"""Stored values shown with the fields that they leave out."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec import inspect

from snapreplay.state.fields import store_fields
from snapreplay.state.values import completing


class Home(msgspec.Struct, omit_defaults=True):
    zip: str = "?"


class Card(msgspec.Struct, omit_defaults=True, tag="card"):
    number: int = 0


class Row(msgspec.Struct, array_like=True):
    home: Home
    n: int = 1


class Place(NamedTuple):
    home: Home


class Limit(msgspec.Struct, omit_defaults=True, rename="camel"):
    cents_max: int = 100
    owner: str = ""
    homes: list[Home] = []
    by_name: dict[str, Home] = {}
    labels: set[int] = set()
    note: str | msgspec.UnsetType = msgspec.UNSET


@dataclass
class Given:
    n: int | msgspec.UnsetType = msgspec.UNSET
    home: Home | None = None


ALL: dict[str, Any] = {"centsMax": 100, "owner": "", "homes": [], "byName": {}, "labels": []}


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        (Limit, Limit(), ALL),
        (Limit, Limit(5, note="x"), {**ALL, "centsMax": 5, "note": "x"}),
        (
            Limit,
            Limit(homes=[Home()], by_name={"a": Home("1")}),
            {**ALL, "homes": [{"zip": "?"}], "byName": {"a": {"zip": "1"}}},
        ),
        (Limit, Limit(labels={3, 1}), {**ALL, "labels": [1, 3]}),
        (Card, Card(), {"type": "card", "number": 0}),
        (Row, Row(Home()), [{"zip": "?"}, 1]),
        (Place, Place(Home()), [{"zip": "?"}]),
        (Given, Given(home=Home()), {"home": {"zip": "?"}}),
        (list[Home], [Home()], [{"zip": "?"}]),
    ],
)
def test_what_is_left_out_is_shown(type_: Any, value: Any, shown: Any) -> None:
    """With its default, under its stored name, in every place; what is unset is not there."""
    complete = completing(type_, store_fields(inspect.type_info(type_)))
    assert complete is not None
    assert msgspec.msgpack.decode(complete(msgspec.msgpack.encode(value))) == shown


@pytest.mark.parametrize("type_", [int, dict[str, int], msgspec.defstruct("Whole", [("n", int, 1)])])
def test_values_that_leave_nothing_out_are_shown_as_they_are_stored(type_: Any) -> None:
    """They are not read for it."""
    assert completing(type_, store_fields(inspect.type_info(type_))) is None


def test_a_value_that_the_type_does_not_read_is_shown_as_it_is_stored() -> None:
    """To be seen is what it is for."""
    complete = completing(Limit, store_fields(inspect.type_info(Limit)))
    stored = msgspec.msgpack.encode({"centsMax": "many"})
    assert complete is not None
    assert complete(stored) == stored

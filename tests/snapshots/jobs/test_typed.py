"""Tests of stored keys and values as columns, without Spark."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.errors import DamagedError, UsageError
from snapreplay.snapshots.jobs.source import Stored, stored_types
from snapreplay.state.keys import KeyCodec
from snapreplay.state.map import MapState
from snapreplay.state.stores import Stores
from tests.support import apps

pack = msgspec.msgpack.encode


class Line(msgspec.Struct, array_like=True):
    sku: str
    count: int


@dataclass
class Tree:
    name: str
    children: list[Tree]


class Colour(enum.Enum):
    RED = "red"


class Order(msgspec.Struct):
    lines: list[Line]
    tags: set[str]
    notes: dict[str, float]
    place: tuple[int, str]
    colour: Colour
    buyer: str | None = None
    either: int | str = 0


def test_structs_become_structs_by_field():
    """Array-like ones, too; what Arrow has no type for is JSON text."""
    order = Order([Line("a", 2)], {"new"}, {"x": 1.5}, (1, "b"), Colour.RED)
    orders = Stored(Order)
    (row,) = orders.array([pack(order)]).to_pylist()
    assert row == {
        "lines": [{"sku": "a", "count": 2}],
        "tags": ["new"],
        "notes": [("x", 1.5)],
        "place": '[1,"b"]',
        "colour": '"red"',
        "buyer": None,
        "either": "0",
    }
    assert orders.type.field("lines").type == pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int64())]))


@pytest.mark.parametrize(
    ("declared", "value", "shown"),
    [
        (int, -5, -5),
        (str, "käse", "käse"),
        (bytes, b"", b""),
        (Any, {"a": [1]}, '{"a":[1]}'),
        (dict[int, int], {1: 2}, '{"1":2}'),
        (Tree, Tree("t", []), {"name": "t", "children": []}),
    ],
)
def test_each_type_has_its_column(declared, value, shown):
    """A deleted entry is null."""
    assert Stored(declared).array([pack(value), None]).to_pylist() == [shown, None]


def test_what_is_not_of_the_type_is_named():
    """The types were changed since it was written; without them it can still be read."""
    with pytest.raises(DamagedError, match="not of type") as refused:
        Stored(int).array([pack("x")])
    assert "leave out the option app" in refused.value.hint


def test_a_state_that_is_no_map_has_no_types():
    """Its entries are the app's own business. In a state of several stores each has types of its own."""
    maps = Stores(a=MapState(str, int), b=MapState(int, str))
    several = App("a", inputs=[Topic("payments")], state=lambda: maps)
    for app in (apps.tape("a"), several):
        with pytest.raises(UsageError, match="not a map") as refused:
            stored_types(app)
        assert "app.id" in refused.value.hint
    keys, values = stored_types(apps.ledger("a"))
    assert (keys.type, values.type) is not None


def test_a_key_of_several_parts_is_no_messagepack():
    """As JSON text: Arrow has no type for a tuple. What is no such key is named."""
    keys = Stored(tuple[str, int], is_key=True)
    assert keys.array([KeyCodec(tuple[str, int]).encode(("a", 7))]).to_pylist() == ['["a",7]']
    with pytest.raises(DamagedError, match="not of type"):
        keys.array([KeyCodec(tuple[int, int]).encode((1, 7))])

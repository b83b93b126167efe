"""Tests of which fields stored values have, and what is refused when the code has others."""

import functools
import operator
import re
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.state.fields import StoreFields, store_fields
from snapreplay.state.map import MapState
from snapreplay.state.recorded import UnknownFields, recorded_after, refuse_fields


class Address(msgspec.Struct):
    zip: str
    city: str = ""


class Person(msgspec.Struct):
    name: str
    home: Address
    others: dict[str, Address] = {}
    friend: "Person | None" = None


class Card(msgspec.Struct, tag="card"):
    number: str


class Cash(msgspec.Struct, tag="cash"):
    amount: int


class Renamed(msgspec.Struct):
    new: str = msgspec.field(name="old")


class Row(msgspec.Struct, array_like=True):
    a: int
    b: int = 0


class Pair(NamedTuple):
    left: int
    right: int


class Options(TypedDict, total=False):
    colour: str


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("type_", "paths"),
    [
        (int, ""),
        (Address, "zip city"),
        (Person, "name home home.zip home.city others others.* others{}.zip others{}.city friend"),
        (Card | Cash, "<card>.number <cash>.amount"),
        (Renamed, "old"),
        (Row, "0= 1="),
        (Pair, "0= 1="),
        (Options, "colour"),
        (Point, "x"),
        (list[Point], "[].x"),
        (tuple[int, Point], "[1].x"),
        (Annotated[Point, msgspec.Meta(description="p")], "x"),
        (dict, "*"),
        (dict[str, int], "*"),
        (Any, "*"),
    ],
)
def test_each_field_of_a_type_has_a_path(type_, paths):
    """By its stored name and its place; a type inside itself is followed once, and a dict may have any field."""
    assert store_fields(inspect.type_info(type_)).paths == set(paths.split())


def family(count):
    """A union of Structs with tags, each of which has two fields of the union."""
    names = [f"Type{number}" for number in range(count)]
    space = {}
    for name in names:
        fields = [(f"{side}_of_{name}", " | ".join(names)) for side in ("left", "right")]
        space[name] = msgspec.defstruct(name, fields, tag=True, namespace={"__module__": __name__})
    globals().update(space)
    return functools.reduce(operator.or_, space.values())


def test_types_that_contain_each_other_have_each_field_once():
    """There are more ways through twenty of them than a machine can count."""
    fields = store_fields(inspect.type_info(family(20)))
    assert len(fields.paths) == 40
    assert "<Type7>.left_of_Type7" in fields.paths


class Order(msgspec.Struct):
    account: "Account"
    number: int


class Account(msgspec.Struct):
    orders: list[Order]
    home: Address
    work: Address


def test_a_recursive_type_is_followed_at_the_shortest_path_and_known_in_each_place():
    """What is no part of the cycle is followed in each place: another type may be there in the next version."""
    fields = store_fields(inspect.type_info(Order))
    below = {f"account.{place}.{name}" for place in ("home", "work") for name in ("zip", "city")}
    assert fields.paths == {"account", "number", "account.orders", "account.home", "account.work"} | below
    for known in ("account.orders[].number", "account.orders[].account.orders[].account.home.zip"):
        assert refuse_fields({"s": [known]}, {"s": fields}, "1") is None
    refused = refuse_fields({"s": ["account.orders[].gone"]}, {"s": fields}, "1")
    assert refused is not None
    assert "'account.orders[].gone'" in refused.message
    lacking = refuse_fields({"s": ["-account.orders[].number"]}, {"s": fields}, "1")
    assert lacking is not None
    assert "may lack 'account.orders[].number'" in lacking.message


class Nested(msgspec.Struct):
    name: str
    child: "Nested | None" = None


class Child(msgspec.Struct):
    name: str
    extra: int = 0


class Parent(msgspec.Struct):
    name: str
    child: Child | None = None


def test_a_field_that_the_same_type_inside_itself_lacks_is_unknown():
    """Where the type is met again, values may be of another type of an earlier version."""
    parent, nested = (store_fields(inspect.type_info(each)) for each in (Parent, Nested))
    recorded = recorded_after({}, {"s": parent})
    refused = refuse_fields(recorded, {"s": nested}, "1")
    assert refused is not None
    assert "'child.extra'" in refused.message
    assert "-child.extra" in recorded_after(recorded, {"s": nested})["s"]
    assert refuse_fields(recorded_after({}, {"s": nested}), {"s": nested}, "1") is None


def of(*paths, dropped=()):
    return {"default": StoreFields(frozenset(paths), dropped)}


@pytest.mark.parametrize(
    ("recorded", "declared", "said"),
    [
        ("a", of("a", "b"), None),
        ("a b", of("a"), "may have the field 'b'"),
        ("a a.x a.y", of("b"), "may have the field 'a',"),
        ("a b", of("*"), None),
        ("a[].x a{}.y", of("a", "a.*"), None),
        ("a a.x b.x", of("a", "a.*", "b.x"), None),
        ("a.* a{}.x a{}.y", of("a.*", "a{}.x"), "may have the field 'a{}.y'"),
        ("* {}.* {}{}.y", of("*", "{}.*", "{}{}.x"), "may have the field '{}{}.y'"),
        ("a.b", of("a.*", "a{}.x"), None),
        ("*", of("a"), "may have any field"),
        ("a b", of("a", dropped=("b",)), None),
        ("a a.x", of("b", dropped=("a",)), None),
        ("a ab", of("ab", dropped=("a",)), None),
        ("a ab", of("c", dropped=("a",)), "may have the field 'ab'"),
        ("a -b", of("a"), None),
        ("a -b", of("a", "b"), "may lack 'b'"),
        ("a -b", of("a", "b", dropped=("b",)), None),
        ("", of("a"), None),
    ],
)
def test_what_would_be_lost_is_refused_by_name(recorded, declared, said):
    """A field that the code does not know, and one that it has but others have dropped; not what it declares as
    dropped."""
    refused = refuse_fields({"default": recorded.split()}, declared, "code:1")
    assert (refused and said in refused.message) == (said and True)


def test_the_remedy_is_what_the_code_needs():
    """Its own declaration is enough, as printed."""
    refused = refuse_fields({"items": ["a", "b", "b.x"]}, {"items": StoreFields(frozenset("a"))}, "1")
    assert isinstance(refused, UnknownFields)
    assert 'dropped=("b",)' in refused.hint
    assert "state.items" in refused.message


@pytest.mark.parametrize(
    "place",
    [
        lambda type_: type_,
        lambda type_: msgspec.defstruct("Person", [("home", type_)]),
        list.__class_getitem__,
        lambda type_: dict.__class_getitem__((str, type_)),
        lambda type_: tuple.__class_getitem__((int, type_)),
    ],
)
@pytest.mark.parametrize("tag", [None, "card"])
def test_the_remedy_of_a_renamed_field_is_followed_where_the_field_is(place, tag):
    """In an object in another one, in a list, in a dict, in a tuple, with a tag: a name is never a path."""

    def declared(field):
        of_it = msgspec.defstruct("It", [("zip_code", str, field)], tag=tag)
        return {"s": store_fields(inspect.type_info(place(of_it)))}

    recorded = recorded_after({}, declared(msgspec.field(name="zip")))
    refused = refuse_fields(recorded, declared(msgspec.field()), "1")
    assert refused is not None
    (name,) = re.findall(r'msgspec\.field\(name="(.*?)"\)', refused.hint)
    assert refuse_fields(recorded, declared(msgspec.field(name=name)), "1") is None


def test_a_renamed_field_of_an_array_loses_nothing():
    """Its place is stored, its name is not. A place that is gone has no name to keep."""

    def declared(*names):
        row = msgspec.defstruct("Row", [(name, int) for name in names], array_like=True)
        return {"s": store_fields(inspect.type_info(row))}

    recorded = recorded_after({}, declared("a", "b"))
    assert refuse_fields(recorded, declared("a", "c"), "1") is None
    refused = refuse_fields(recorded, declared("a"), "1")
    assert refused is not None
    assert 'dropped=("1=",)' in refused.hint
    assert "renamed" not in refused.hint


def test_what_was_dropped_is_remembered():
    """Until a code has the field again: so it does not begin with its default unseen."""
    first = recorded_after({}, of("a", "b"))
    second = recorded_after(first, of("a", dropped=("b",)))
    third = recorded_after(second, of("a", "c"))
    assert (first, second) == ({"default": ["a", "b"]}, {"default": ["-b", "a"]})
    assert third == {"default": ["-b", "a", "c"]}
    assert recorded_after(third, of("a", "b", "c", dropped=("b",))) == {"default": ["a", "b", "c"]}
    assert recorded_after({"gone": ["x"]}, of("a")) == {"default": ["a"], "gone": ["x"]}


@pytest.mark.parametrize("dropped", ["email", [1], 7])
def test_what_is_dropped_must_be_names(dropped):
    """A text would be taken for its letters."""
    with pytest.raises(UsageError, match="dropped") as refused:
        MapState(str, Address, dropped=dropped)
    assert 'use `dropped=("email",)`' in refused.value.hint
    MapState(str, Address, dropped=("email",))

"""Comparison with what values read back as, and objects in two places."""

import datetime
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import inspect

from snapreplay.state.read_back import PARTS, MutableObjects, comparing, differing, met_twice
from snapreplay.state.round_trip import flat_check
from snapreplay.state.steps import all_of


class Point(msgspec.Struct):
    x: int = 0
    f: float = 0.0


class Fixed(msgspec.Struct, frozen=True):
    x: int = 0


class Buy(msgspec.Struct, tag=True):
    at: int
    lots: list[int] = []


class Sell(msgspec.Struct, tag=True):
    at: float
    note: str = ""


class Book(msgspec.Struct):
    events: list[Buy | Sell] = []


class Positive(msgspec.Struct):
    f: float

    def __post_init__(self) -> None:
        self.f = abs(self.f)


@dataclass
class Data:
    x: int = 0
    y: str = ""


class Pair(NamedTuple):
    a: int
    b: list[Any]


class Colour(StrEnum):
    RED = "red"


def alike(*pairs: tuple[object, object]) -> bool:
    """All at once."""
    values, backs = zip(*pairs, strict=True)
    return all_of(comparing(values, backs, MutableObjects()))


def place(value: object, back: object) -> str | None:
    """Say where they differ first."""
    found = all_of(differing(value, back))
    return None if found is None else found[0]


MINUS_ZERO = Positive(0.0)
MINUS_ZERO.f = -0.0

DIFFERING: list[tuple[object, object, str]] = [
    (MINUS_ZERO, Positive(0.0), ".f"),
    ((1, 2), [1, 2], ""),
    ({"a": (1, 2)}, {"a": [1, 2]}, "['a']"),
    ({"a": [1, {2}]}, {"a": [1, [2]]}, "['a'][1]"),
    (bytearray(b"x"), b"x", ""),
    ({"a": True}, {"a": 1}, "['a']"),
    (Point(f=5), Point(f=5.0), ".f"),
    (Data(True), Data(1), ".x"),
    (Data(2), Data(1), ".x"),
    (Positive(1.0), Positive(2.0), ".f"),
    (Book([Buy(1), Sell(5)]), Book([Buy(1), Sell(5.0)]), ".events[1].at"),
    (Book([Buy(1), Sell(5.0)]), Book([Buy(1), Buy(5)]), ".events[1]"),
    (Book([Sell(1.0)] * PARTS + [Buy(1, [0, True])]), Book([Sell(1.0)] * PARTS + [Buy(1, [0, 1])]),
     f".events[{PARTS}].lots[1]"),
    ({"a": Colour.RED}, {"a": "red"}, "['a']"),
    ({Colour.RED: 1}, {"red": 1}, ""),
    ([1, 2], [1], ""),
    ([[1, 2], [3]], [[1], [2, 3]], "[0]"),
    ([[], [1]], [[1], []], "[0]"),
    ({"a": 1}, {"b": 1}, ""),
    ([{"a": 1, "b": None}], [{"b": None, "c": 1}], "[0]"),
    ({1}, {1.0}, ""),
    ({(1, 2)}, {(1, 2.0)}, "[(1, 2)][1]"),
    ([{(1,)}, {"a"}], [{(1,)}, {"b"}], "[1]"),
    (Pair(1, [(2,)]), Pair(1, [[2]]), "[1][0]"),
    ([datetime.time(1, fold=1)], [datetime.time(1)], "[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "back", "path"), DIFFERING)
def test_a_difference_is_found_and_placed(value: object, back: object, path: str) -> None:
    """The path leads to the first part that is not the same; many values at once hide it nowhere."""
    assert place(value, back) == path
    same = (Book([Buy(1)]), Book([Buy(1)]))
    assert alike(same, same)
    assert not alike(same, *[(Point(), Point())] * PARTS, (value, back), same)


def test_what_reads_back_is_alike() -> None:
    """Dicts and sets in another order too, NaN, empty things, times, and a Struct with code of its own."""
    utc = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    for value in (
        [{}, [], (), set(), Fixed(), Book(), None, math.nan, Colour.RED, utc],
        [Positive(math.nan), Data(1, "a"), Pair(1, [2]), {(1, "a"), (2, "b")}],
        [Book([Buy(n, [n] * 3) if n % 3 else Sell(n + 0.5) for n in range(3 * PARTS)])],
    ):
        assert alike((value, copied(value)))
        assert place(value, copied(value)) is None
    assert alike(({"a": [1], "b": [2.0]}, {"b": [2.0], "a": [1]}))


def copied(value: Any) -> Any:
    """Copy as decoding gives it: new containers all the way."""
    if isinstance(value, Pair):
        return Pair(*map(copied, value))
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(map(copied, value))
    if isinstance(value, msgspec.Struct | Data):
        names = getattr(value, "__struct_fields__", None) or ("x", "y")
        return type(value)(*(copied(getattr(value, name)) for name in names))
    return float("nan") if value != value else value  # noqa: PLR0124 - only NaN differs from itself


class Node(msgspec.Struct, tag=True):
    f: float
    inner: list["Node | Leaf"] = []
    by_name: dict[str, "Node | Leaf"] = {}


class Leaf(msgspec.Struct, tag=True):
    any: Any = None


SCALAR = st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=2)
VALUES = st.recursive(
    SCALAR | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.just(Colour.RED), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Leaf, inner)
    ),
    max_leaves=6,
)
NODES = st.recursive(
    st.builds(Leaf, VALUES),
    lambda inner: st.builds(
        Node,
        st.floats() | st.integers(0, 1),
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=2),
    ),
    max_leaves=6,
)
DECLARED: list[Any] = [Any, dict, list, dict[str, int], list[float], int, float | str, Node | Leaf]


def exactly(value: Any) -> Any:
    """Something that is equal only for values that are the same through and through."""
    if isinstance(value, dict):
        pairs = [(exactly(key), exactly(part)) for key, part in value.items()]
        return type(value), sorted(pairs, key=repr)
    if isinstance(value, list | tuple):
        return type(value), list(map(exactly, value))
    if isinstance(value, msgspec.Struct):
        return type(value), [exactly(getattr(value, name)) for name in value.__struct_fields__]
    return type(value), repr(value)


@given(st.lists(VALUES | NODES, min_size=1, max_size=4), st.sampled_from(DECLARED))
def test_the_comparison_is_that_of_the_parts_one_by_one(values: list[Any], declared: Any) -> None:
    """By columns, by place, and by type alone: each agrees with a comparison of everything."""
    encode = msgspec.msgpack.Encoder(order="deterministic").encode
    decode = msgspec.msgpack.Decoder(declared).decode
    try:
        backs = [decode(encode(value)) for value in values]
    except msgspec.ValidationError:
        return
    faithful = list(map(exactly, values)) == list(map(exactly, backs))
    assert alike(*zip(values, backs, strict=True)) == faithful
    assert all(place(*pair) is None for pair in zip(values, backs, strict=True)) == faithful
    assert faithful or not flat_check(inspect.type_info(declared))(values)


def mutable_ids(value: Any) -> Iterator[int]:
    """Naively, for what VALUES and NODES are made of."""
    if isinstance(value, list | dict | msgspec.Struct):
        yield id(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, list | tuple):
        for part in value:
            yield from mutable_ids(part)


@given(st.lists(VALUES | NODES, min_size=1, max_size=3), st.data())
def test_an_object_in_two_places_is_found_and_placed(parts: list[Any], data: st.DataObject) -> None:
    """The same object drawn twice, at any depth, under one key or two."""
    drawn = st.recursive(
        st.sampled_from(parts),
        lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.builds(Leaf, inner),
        max_leaves=4,
    )
    values = data.draw(st.lists(drawn, min_size=1, max_size=3))
    objects = MutableObjects()
    assume(all_of(comparing(values, values, objects)))  # not with a key that is no exact str
    ids = [found for value in values for found in mutable_ids(value)]
    assert objects.met_again == (len(set(ids)) < len(ids))
    assert (all_of(met_twice(dict(enumerate(values)))) is not None) == objects.met_again


def test_only_mutable_objects_count() -> None:
    """Dicts, lists, sets, bytearrays and unfrozen objects; not tuples, frozen objects, enums, times or scalars."""
    day, fixed, pair = datetime.date(2024, 5, 1), Fixed(), (1, 2)
    immutable = [day, fixed, pair, Colour.RED, None, "x", frozenset({1})]
    assert all_of(met_twice({"a": immutable, "b": list(immutable)})) is None
    assert all_of(met_twice(dict.fromkeys("ab", pair))) is None
    mutables: list[object] = [{}, [], {1}, bytearray(), Point(), Data()]
    for mutable in mutables:
        assert all_of(met_twice({"a": [(mutable,)], "b": {"c": mutable}})) == (("b", "['c']"), ("a", "[0][0]"))


@pytest.mark.parametrize("value", [list(range(20_000)), {str(n): [n] for n in range(10_000)}])
def test_a_large_value_is_compared_in_steps(value: Any) -> None:
    """Also while the place is looked for: in one step, a value of the largest size would take 0.1 s."""
    back = copied(value)
    assert len(list(comparing([value], [back], MutableObjects()))) >= 20_000 // PARTS
    assert len(list(differing(value, back))) >= 10_000 // PARTS
    assert len(list(met_twice({"k": value}))) >= 10_000 // PARTS


def test_a_deep_value_needs_no_stack() -> None:
    """As deep as msgspec decodes."""
    value: list[Any] = []
    for _ in range(900):
        value = [value]
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    assert alike((value, back))
    assert place(value, back) is None
    assert all_of(met_twice({"k": value})) is None

"""Tests of which values read back as themselves."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import inspect

from snapreplay.state.round_trip import flat_check, is_shareable, unwritable


class Point(msgspec.Struct):
    x: int = 0
    f: float = 0.0
    s: str | None = None


class Fixed(msgspec.Struct, frozen=True):
    x: int = 0


class Nested(msgspec.Struct):
    points: list[Point] = []


class Repaired(msgspec.Struct):
    x: int = 0

    def __post_init__(self) -> None:
        self.x += 1


@dataclass
class Data:
    x: int = 0
    y: str = ""


class Colour(StrEnum):
    RED = "red"


class Words(dict[str, int]):
    """Equal to a dict, and read back as one."""


Positive = Annotated[int, msgspec.Meta(gt=0)]


def flat(declared: Any, *values: object) -> bool:
    """Say whether types alone say that the values are fine."""
    return flat_check(inspect.type_info(declared))(values)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, 1),
        (str, "a"),
        (float, math.nan),
        (bytes, b""),
        (bool, True),
        (int | None, None),
        (int | float, 1.5),
        (dict, {"a": 1, "b": None, "c": 1.5}),
        (dict, {}),
        (dict[str, int], {"a": 1}),
        (dict[str, int | None], {"a": None}),
        (list, [1, "a", None]),
        (list[int], [1, 2]),
        (Any, 5),
        (Any, {"a": 1}),
        (Any, [1]),
        (Point, Point(1, 2.0, "a")),
        (Point, Point()),
        (Fixed, Fixed(1)),
        (Data, Data(1, "a")),
    ],
)
def test_plain_values_are_known_by_their_types(declared: Any, value: object) -> None:
    """The cheap way covers what states are mostly made of."""
    assert flat(declared, value)
    assert flat(declared, value, value)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, True),
        (int, 1.0),
        (float, 1),
        (str, Colour.RED),
        (Positive, 1),
        (Literal["a"], "a"),
        (dict, {"a": [1]}),
        (dict, {"a": (1, 2)}),
        (dict, {"a": {"b": 1}}),
        (dict, {1: 1}),
        (dict, {Colour.RED: 1}),
        (dict, {"a": Colour.RED}),
        (dict, Words(a=1)),
        (dict, [1]),
        (dict[str, float], {"a": 1}),
        (list, [[1]]),
        (list[float], [1]),
        (list, (1, 2)),
        (Any, (1, 2)),
        (Any, {"a": {}}),
        (Point, Point(x=1.0)),  # type: ignore[arg-type]
        (Point, Point(f=1)),
        (Point, Point(s=b"a")),  # type: ignore[arg-type]
        (Point, Fixed()),
        (Nested, Nested()),
        (Repaired, Repaired()),
    ],
)
def test_everything_else_must_be_compared(declared: Any, value: object) -> None:
    """False says "compare it", not "refuse it"; one such value among many is enough."""
    assert not flat(declared, value)
    fine = {int: 1, dict: {"a": 1}, list: [1], Point: Point()}.get(declared, value)
    assert not flat(declared, fine, value, fine)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [(int, True), (str | None, True), (Fixed, True)]
    + [(declared, False) for declared in (Any, dict, list[int], Point, Data, Nested)],
)
def test_only_immutable_types_are_shareable(declared: Any, *, expected: bool) -> None:
    """One object may then stand under two keys."""
    assert is_shareable(inspect.type_info(declared)) is expected


encode = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass
class Plain:
    inside: Any


class Struct(msgspec.Struct):
    inside: Any


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        ({1: 2}, "", "is a dict with the key int 1, but keys of a dict must be str"),
        ([0, {"a": {(1, 2): 3}}], "[1]['a']", "is a dict with the key tuple (1, 2), but"),
        (Struct(Plain({None: 1})), ".inside.inside", "is a dict with the key NoneType None, but"),
        ((2**64,), "[0]", "is int 18446744073709551616"),
        ({"a": -(2**63) - 1}, "['a']", "is int -9223372036854775809"),
        ({"a": "\ud800"}, "['a']", r"is str '\ud800'"),
        ([{"\udfff": 1}], "[0]", r"is a dict with the key str '\udfff'"),
    ],
)
def test_the_place_and_the_part_are_named(value, path, why):
    """Inside of lists, tuples, dicts, Structs and dataclasses; what can be written is passed over."""
    with pytest.raises((TypeError, ValueError, OverflowError)) as caught:
        encode([2**63, True, "x", value])
    found = unwritable([2**63, True, "x", value], caught.value)
    assert found is not None
    assert found.path == f"[3]{path}"
    assert found.why.startswith(why)

"""Tests that what in a value cannot be written is found where it is."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from snapreplay.state.unwritable import unwritable

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


@pytest.mark.parametrize("value", [object(), {1, "a"}])
def test_what_is_not_known_is_left_to_the_encoder_s_own_words(value):
    """A value of a type that nothing encodes; a set that has no order."""
    with pytest.raises(TypeError) as caught:
        encode(value)
    assert unwritable(value, caught.value) is None


def test_a_value_inside_itself_ends_the_search():
    """Nobody looks into what recurs for ever."""
    loop: list[Any] = []
    loop += [loop, loop]
    with pytest.raises(RecursionError) as caught:
        encode(loop)
    assert unwritable(loop, caught.value) is None

"""Tests of what a batch touched, encoded and checked."""

import datetime
from typing import Any

import msgspec
import pytest

from snapreplay.errors import RecordError
from snapreplay.state.read_back import PARTS
from snapreplay.state.shards import Slot
from snapreplay.state.staging import BLOCK, Touched, encoding
from snapreplay.state.steps import all_of
from snapreplay.state.values import DELETED, ValueCodec


class Frozen(msgspec.Struct, frozen=True):
    n: int = 0


def encoded(live: dict[str, Any], declared: Any = dict, limit: int = 1000) -> list[Any]:
    """The values of a batch, decoded again for comparison; None for a tombstone."""
    places: list[Slot] = [(msgspec.msgpack.encode(key), None, 0) for key in live]
    (result,) = all_of(encoding([Touched(live, places, ValueCodec(declared), limit)]))
    assert list(result) == [place[0] for place in places]
    return [None if new is None else msgspec.msgpack.decode(new) for new in result.values()]


def test_the_order_is_that_of_the_touches() -> None:
    """Deleted keys stand between the others, as None."""
    live = {"b": {"n": 1}, "a": DELETED, "c": {"n": [2]}, "d": DELETED}
    assert encoded(live) == [{"n": 1}, None, {"n": [2]}, None]
    assert encoded({}) == []
    many = {f"k{i}": DELETED if i % 3 == 0 else {"n": i} for i in range(2000)}
    assert encoded(many) == [None if i % 3 == 0 else {"n": i} for i in range(2000)]


@pytest.mark.parametrize("bad", [{"n": 2**64}, {"n": "\ud800"}, {1: 2}, {"n": object()}])
def test_the_key_of_a_value_that_cannot_be_encoded_is_named(bad: object) -> None:
    """Not the first key, and not msgspec's exception."""
    with pytest.raises(RecordError, match=r"state\['bad'\](: a dict cannot be encoded| is a dict with the key int 1)"):
        encoded({"fine": {"n": 1}, "gone": DELETED, "bad": bad})


def test_a_value_that_contains_itself_is_refused() -> None:
    """By name, although the encoder runs out of stack."""
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(RecordError, match=r"state\['k'\]"):
        encoded({"k": loop})


@pytest.mark.parametrize("value", [0, {"n": [1]}], ids=["flat", "with others in it"])
def test_the_work_is_done_in_steps(value: object) -> None:
    """Whole, a batch would take tens of milliseconds."""
    live = {f"k{i}": value if value == 0 else {"n": [i]} for i in range(4 * BLOCK)}
    places: list[Slot] = [(msgspec.msgpack.encode(key), None, 0) for key in live]
    steps = len(list(encoding([Touched(live, places, ValueCodec(type(value)), 10**6)])))
    compared = 0 if value == 0 else 4 * len(live) // PARTS
    assert steps >= 4 + compared


class Broken(msgspec.Struct):
    n: int = 0

    def __post_init__(self) -> None:
        if self.n < 0:
            raise KeyError(self.n)


def test_any_error_of_the_own_code_of_a_type_is_an_error_of_the_value() -> None:
    """msgspec passes on what is no ValueError or TypeError."""
    bad = Broken()
    bad.n = -1
    with pytest.raises(RecordError, match=r"state\['bad'\] would not read back .*: -1"):
        encoded({"fine": Broken(1), "bad": bad}, Broken)


def test_one_object_under_two_keys_is_refused() -> None:
    """Both keys are named; equal objects are fine, and so is an object under one key."""
    one = {"n": 1}
    with pytest.raises(RecordError, match=r"state\['b'\] and state\['a'\] hold the same object"):
        encoded({"a": one} | {f"k{i}": {"n": 1} for i in range(2000)} | {"b": one}, limit=10**6)
    assert encoded({"a": {"n": 1}, "b": {"n": 1}}) == [{"n": 1}] * 2


def test_immutable_values_may_be_shared() -> None:
    """Scalars under a declared scalar type, among others, and frozen Structs."""
    assert encoded({"a": 1000000, "b": 1000000}, int) == [1000000] * 2
    text = "one object"
    assert encoded({"a": text, "b": text, "c": [1]}, Any) == [text, text, [1]]
    day = datetime.date(2024, 5, 1)
    assert encoded({"a": day, "b": day}, datetime.date) == ["2024-05-01"] * 2
    frozen = Frozen(1)
    assert encoded({"a": frozen, "b": frozen}, Frozen) == [{"n": 1}] * 2


def test_an_entry_of_the_limit_fits_and_one_byte_more_does_not() -> None:
    """Key and value together; the others are not counted."""
    live = {"a": "x" * 90, "b": "y" * 90}
    assert encoded(live, str, limit=94)
    with pytest.raises(RecordError, match=r"state\['a'\] takes 94 bytes with its key.* 93") as caught:
        encoded(live, str, limit=93)
    assert caught.value.facts["size_bytes_max"] == 93

"""Tests of what a value codec says about a value that cannot be kept."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from snapreplay import App, MapState, Topic
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.read_back import MutableObjects
from snapreplay.state.steps import all_of
from snapreplay.state.values import ValueCodec
from snapreplay.testing import Harness


class Account(msgspec.Struct):
    balance: float = 0.0
    history: list[Any] = []


def verify(declared: Any, value: object) -> None:
    """Encode and check as staging does."""
    codec: ValueCodec[Any] = ValueCodec(declared)
    all_of(codec.reading_back(["k"], [value], [codec.pack(value)], MutableObjects()))


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (dict, {"a": (1, 2)}, r"state\['k'\]\['a'\] is tuple \(1, 2\) but would read back as list"),
        (dict, {"a": {1}}, r"state\['k'\]\['a'\] is set \{1\} but would read back as list \[1\]"),
        (dict, {"a": bytearray(b"x")}, r"\['a'\] is bytearray .* but would read back as bytes"),
        (float, 1, r"state\['k'\] is int 1 but would read back as float 1.0"),
        (Account, Account(1), r"state\['k'\].balance is int 1 but would read back as float 1.0"),
        (Account, Account(history=[[(1,)]]), r"\.history\[0\]\[0\] is tuple"),
        (int, "a", "would not read back as .*int.*Expected `int`, got `str`"),
    ],
)
def test_a_value_that_changes_is_refused_by_place_and_types(declared: Any, value: object, message: str) -> None:
    """The message says where, what, and what would become of it; the hint what to do."""
    with pytest.raises(RecordError, match=message) as caught:
        verify(declared, value)
    assert caught.value.hint
    assert caught.value.facts["key"] == "k"


def test_declared_types_are_kept() -> None:
    """A tuple or set that is declared reads back as one."""
    verify(tuple[int, int], (1, 2))
    verify(dict[str, tuple[int, ...]], {"a": (1, 2, 3)})
    verify(set[str], {"a", "b"})
    verify(Account, Account(1.5, [{"a": [1, None]}]))


@pytest.mark.parametrize("declared", [object(), 3, "nothing", dict[str, int] | list[int] | tuple[int]])
def test_types_that_cannot_be_decoded_are_refused(declared: Any) -> None:
    """At construction, with the alternatives."""
    with pytest.raises(UsageError, match="cannot be a value type") as caught:
        ValueCodec(declared)
    assert "Struct" in caught.value.hint


def put(value_type, value):
    """Store it in a map, by a handler."""
    topic = Topic("in")
    app = App("values", inputs=[topic], state=lambda: MapState(str, value_type))
    app.handler(topic)(lambda record, state, out: state.__setitem__("k", value))
    harness = Harness(app)
    harness.feed(topic, key="k", value=1)
    harness.crash()
    return harness.state["k"]


@pytest.mark.parametrize(
    "zone", [timezone(timedelta(hours=2)), ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-5, minutes=-30))]
)
def test_a_datetime_with_an_offset_shows_what_differs(zone):
    """Both were cut before the difference. What the hint says is stored."""
    at = datetime(2026, 7, 1, 12, 0, tzinfo=zone)
    with pytest.raises(RecordError) as caught:
        put(datetime, at)
    assert f"is datetime {at.isoformat()} but would read back as datetime {at.astimezone(UTC).isoformat()}" in str(
        caught.value
    )
    assert "value.astimezone(UTC)" in caught.value.hint
    assert put(datetime, at.astimezone(UTC)) == at

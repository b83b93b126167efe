"""Lines that correct entries: every mistake in a file is named with its line, and nothing is half-done."""

import dataclasses
import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from snapreplay.state.correction import LINES_MAX, NotCorrected, correct, corrections_of, refusals
from snapreplay.state.digest import EMPTY
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores, store_of


class V2(msgspec.Struct):
    n: int = 0


class Account(msgspec.Struct):
    owner: uuid.UUID
    since: datetime
    tags: frozenset[str] = frozenset()
    data: bytes = b""


def stores():
    return Stores(
        accounts=MapState(int, Account), names=MapState(bytes, str | None), any=MapState(tuple[str, int], Any)
    )


def read(*lines, state=None, partitions=2, reason="why"):
    text = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines]
    return corrections_of(text, MapState(str, int) if state is None else state, partitions, reason)


GOOD = {"key": "a", "expected": 1, "value": 2}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "Input data was truncated"),
        (b"\xff\xfe", "line 1: "),
        ({"key": "a", "value": 2}, 'either "expected" or "absent": true must be there'),
        (GOOD | {"absent": True}, 'either "expected" or "absent"'),
        ({"key": "a", "expected": 1}, 'either "value" or "delete": true must be there'),
        (GOOD | {"delete": True}, 'either "value" or "delete"'),
        ({"key": "a", "absent": True, "delete": True}, "an entry that is not there cannot be deleted"),
        (GOOD | {"delete": False}, "line 1: "),
        (GOOD | {"value": 1}, r"state\['a'\] would stay as it is"),
        (GOOD | {"value": "2"}, "Expected `int`, got `str`"),
        (GOOD | {"key": 7}, "Expected `str`, got `int`"),
        (GOOD | {"expected": 1.5}, "Expected `int`, got `float`"),
        (GOOD | {"stor": "x"}, "unknown field `stor`"),
        (GOOD | {"store": "defualt"}, "no store 'defualt'; did you mean default"),
        (GOOD | {"partition": 2}, r"partition 2 does not exist: there are 2 \(0 to 1\)"),
        (GOOD | {"partition": -1}, "partition -1 does not exist"),
        ({"expected": 1, "value": 2}, "missing required field `key`"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line, why):
    """With its number, and how a line looks."""
    with pytest.raises(NotCorrected, match=why) as refused:
        read(line)
    assert "1 line cannot be carried out, so nothing was changed:\n  line 1: " in refused.value.message
    assert '"expected": {"n": 4}' in refused.value.hint


def test_the_line_in_the_hint_can_be_read():
    """And both other forms that it names."""
    state = Stores(accounts=MapState(str, dict))
    with pytest.raises(NotCorrected) as refused:
        read(state=state)
    ((line, *others),) = re.findall(r"such as (\{.*?\}); `(.*?)` .* `(.*?)`", refused.value.hint)
    line, absent, delete = map(json.loads, (line, *(f"{{{each}}}" for each in others)))
    without = {name: value for name, value in line.items() if name != "expected"} | absent | {"key": "bob"}
    gone = {name: value for name, value in line.items() if name != "value"} | delete | {"key": "eve"}
    made = read(line, without, gone, state=state)
    assert [str(each).partition(": ")[2] for each in made] == [
        '{"n":4} → {"n":5}',
        'no entry → {"n":5}',
        '{"n":4} → no entry',
    ]


def test_an_entry_stands_in_one_line():
    """Two lines for it would depend on their order. Another store or partition is another entry."""
    with pytest.raises(NotCorrected, match=r"line 3: state\['a'\] is in line 1 already"):
        read(GOOD, GOOD | {"key": "b"}, GOOD | {"value": 5})
    assert len(read(GOOD | {"partition": 0}, GOOD | {"partition": 1})) == 2


def test_a_file_without_lines_and_one_with_too_many_are_refused():
    """A file is one decision, in one increment."""
    with pytest.raises(NotCorrected, match="the file has no line"):
        read(b"", b"  ")
    with pytest.raises(NotCorrected, match="more than 10,000 lines"):
        read(*(many := [GOOD | {"key": f"k{i}"} for i in range(LINES_MAX + 1)]))
    assert [len(read(*part)) for part in (many[:LINES_MAX], many[LINES_MAX:])] == [LINES_MAX, 1]


def test_each_line_needs_a_reason():
    """Its own, or that of all; the log keeps it."""
    with pytest.raises(NotCorrected, match="no reason was given"):
        read(GOOD, reason=" ")
    assert [each.reason for each in read(GOOD | {"reason": "a typo"}, GOOD | {"key": "b"})] == ["a typo", "why"]


def test_values_are_read_by_their_declared_types():
    """UUID, time, set, bytes, null, tuples as keys: what a handler would have stored, and the same back."""
    number = uuid.UUID(int=7)
    account = Account(number, datetime(2026, 1, 2, tzinfo=UTC), frozenset({"a"}), b"\x00\xff")
    lines = [
        {"store": "accounts", "key": 5, "absent": True, "value": msgspec.to_builtins(account)},
        {"store": "names", "key": "AP8=", "absent": True, "value": None},
        {"store": "any", "key": ["x", 1], "absent": True, "value": {"deep": [1, 2.5, None]}},
    ]
    state = stores()
    store = store_of(state)
    made = read(*lines, state=state)
    assert list(refusals(store, made)) == []
    correct(store, made)
    assert (state.accounts[5], state.names[b"\x00\xff"]) == (account, None)
    assert state.any["x", 1] == {"deep": [1, 2.5, None]}
    assert [why.partition(": ")[0] for why in refusals(store, made)] == ["line 1", "line 2", "line 3"]
    correct(store, read(*(each.undone().encode() for each in made), state=state))
    assert store.digest == EMPTY


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"key": "b", "absent": True, "value": "x" * 200}, r"state\['b'\] takes 204 bytes with its key, but the limit"),
        ({"key": "b", "absent": True, "value": 2**70}, "line 2: "),
        ({"key": "b", "absent": True, "value": {"n": {"1": 1}}, "expected": 2}, "either"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named_before_anything_is_asked(line, why):
    """The good line is not carried out either."""
    state = MapState(str, Any, entry_bytes_max=100)
    with pytest.raises(NotCorrected, match=why):
        read({"key": "a", "absent": True, "value": 1}, line, state=state)


class Refusing(msgspec.Struct):
    n: int

    def __post_init__(self):
        raise RuntimeError("not today")


def test_what_a_users_type_raises_is_a_line_that_cannot_be_read():
    """Of any kind."""
    with pytest.raises(NotCorrected, match="line 1: not today"):
        read({"key": "a", "absent": True, "value": {"n": 1}}, state=MapState(str, Refusing))


class Limits(msgspec.Struct, tag="limits", rename={"daily": "d"}):
    daily: int = 0
    parts: list[V2] = []


@dataclasses.dataclass
class Plain:
    n: int = 0


@pytest.mark.parametrize(
    ("value_type", "value", "field"),
    [
        (Limits, {"d": 1, "limti": 20}, "limti"),
        (Limits, {"daily": 1}, "daily"),
        (Limits, {"type": "limits", "parts": [{"n": 1}, {"m": 2}]}, "parts.m"),
        (Plain, {"n": 1, "m": 2}, "m"),
        (dict[str, V2], {"x": {"m": 1}}, "x.m"),
    ],
)
def test_a_field_that_the_type_has_not_is_not_dropped(value_type, value, field):
    """A typo would write the default."""
    with pytest.raises(NotCorrected, match=f"its type has no field {field}$|its type has no field {field} "):
        read({"key": "a", "absent": True, "value": value}, state=MapState(str, value_type))


def test_fields_with_defaults_tags_and_other_names_are_read():
    """All that msgspec reads."""
    lines = [{"key": "a", "absent": True, "value": {"type": "limits", "d": 0}}]
    assert read(*lines, state=MapState(str, Limits))[0].value == Limits()


def test_values_are_the_same_only_if_they_are_stored_so():
    """True is not 1, and a dict keeps its order."""
    state: MapState[str, Any] = MapState(str, Any)
    store = store_of(state)
    state["a"] = {"b": 1, "a": 2}
    all_of(store.staging())
    all_of(store.sealing())
    store.merge()
    for expected in ({"b": True, "a": 2}, {"a": 2, "b": 1}, {"b": 1.0, "a": 2}):
        made = read({"key": "a", "expected": expected, "delete": True}, state=state)
        assert list(refusals(store, made)), expected
    made = read({"key": "a", "expected": {"b": 1, "a": 2}, "value": {"b": True, "a": 2}}, state=state)
    assert list(refusals(store, made)) == []
    correct(store, made)
    assert state["a"]["b"] is True


def test_an_entry_that_would_expire_at_once_is_refused():
    """Before the first record there is no time to count from."""
    state = MapState(str, int, ttl_ms=1000)
    made = read({"key": "a", "absent": True, "value": 1}, state=state)
    (why,) = refusals(store_of(state), made)
    assert "would expire with the first record" in why

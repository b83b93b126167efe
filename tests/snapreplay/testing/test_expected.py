"""What differs first from what a fold by hand expects."""

from typing import Any

import pytest

from snapreplay import MapState, Stores
from snapreplay.errors import UsageError
from snapreplay.testing.expected import output_difference, state_difference


def of(entries: dict[str, int]) -> MapState[str, int]:
    state: MapState[str, int] = MapState(str, int)
    state.update(entries)
    return state


def shop(**stores: dict[str, int]) -> Stores:
    made: dict[str, Any] = {name: of(entries) for name, entries in stores.items()}
    return Stores(**made)


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ([of({"a": 1}), of({"b": 2})], {"b": 2, "a": 1}, ""),
        ([of({}), of({})], {}, ""),
        ([of({"a": 1}), of({"b": 2})], {"b": 3, "a": 4}, "key 'b': 2, expected 3"),
        ([of({"a": 1})], {"a": 1, "b": 2}, "key 'b': missing, expected 2"),
        ([of({"a": 1, "b": 2})], {"a": 1}, "key 'b': 2, expected missing"),
        ([shop(x={"a": 1}, y={}), shop(x={}, y={"a": 1})], {"x": {"a": 1}, "y": {"a": 1}}, ""),
        ([shop(x={"a": 1}, y={"a": 1})], {"x": {"a": 1}, "y": {"a": 2}}, "store 'y', key 'a': 1, expected 2"),
        ([shop(x={"a": 1}, y={"a": 1})], {"x": {"a": 1}}, "store 'y', key 'a': 1, expected missing"),
    ],
)
def test_the_first_entry_that_differs_is_named(found: list[object], expected: Any, difference: str) -> None:
    """In the order of what is expected; then what is too much."""
    assert state_difference(found, expected) == difference


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ([shop(x={"a": 1}, y={"b": 1}), shop(x={"a": 1}, y={})], {"x": {"a": 1}, "y": {"b": 1}}, ""),
        ([shop(x={"a": 1}), shop(x={})], {"x": {"a": 1}}, "store 'x', key 'a': missing, expected 1"),
        ([shop(x={"a": 1}), shop(x={"a": 2})], {"x": {"a": 1}}, "store 'x', key 'a': 2, expected 1"),
        ([shop(x={"a": 1})], {}, "store 'x', key 'a': 1, expected missing"),
    ],
)
def test_a_broadcast_table_is_expected_in_each_partition(found: list[object], expected: Any, difference: str) -> None:
    assert state_difference(found, expected, {"x"}) == difference
    whole: list[object] = [of({"a": 1}), of({"a": 1})]
    assert state_difference(whole, {"a": 1}, {"default"}) == ""
    assert "expected 2" in state_difference(whole, {"a": 2}, {"default"})


@pytest.mark.parametrize(
    ("found", "expected", "why"),
    [
        ([of({"a": 1}), of({"a": 1})], {"a": 1}, "several partitions have an entry with key 'a'"),
        ([shop(x={})], {"z": {}}, "no store 'z'"),
    ],
)
def test_what_cannot_be_compared_is_refused(found: list[object], expected: Any, why: str) -> None:
    """Silence would pass for equality."""
    with pytest.raises(UsageError, match=why):
        state_difference(found, expected)


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        ([("b", 1), ("a", 1), ("a", 2)], ""),
        ([("a", 2), ("a", 1), ("b", 1)], "key 'a', output 1: 2, expected 1"),
        ([("a", 1), ("b", 1)], "key 'a', output 2: missing, expected 2"),
        ([("a", 1), ("a", 2), ("b", 1), ("a", 2)], "key 'a', output 3: 2, expected missing"),
        ([("a", 1), ("a", 2)], "key 'b', output 1: missing, expected 1"),
        ([("a", 1), ("a", 2), ("b", 1), ("c", 1)], "key 'c', output 1: 1, expected missing"),
    ],
)
def test_the_first_output_that_differs_is_named(found: list[tuple[str, int]], difference: str) -> None:
    """The order of the outputs of a key counts; that of several keys does not. One that was sent twice is found."""
    assert output_difference(found, [("a", 1), ("a", 2), ("b", 1)]) == difference

"""The state as handlers see it."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from snapreplay.errors import RecordError, UsageError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from tests.support import batches


class Account(msgspec.Struct):
    balance: int = 0


def commit(state: MapState[Any, Any]) -> dict[bytes, bytes | None]:
    """End a batch and begin the next one; returns its changes."""
    store = state.__snapreplay_store__()
    changes = batches.commit(store).changes.get("default", {})
    store.begin()
    return changes


@pytest.fixture
def state() -> MapState[str, dict[str, Any]]:
    """Holds a: 1 and b: 2, committed."""
    made: MapState[str, dict[str, Any]] = MapState(str, dict, default=lambda: {"n": 0})
    made.update({"b": {"n": 2}, "a": {"n": 1}})
    commit(made)
    return made


def test_every_missing_key_gets_its_own_default() -> None:
    """Even if the function returns the same object each time, and deep inside."""
    constant: dict[str, Any] = {"inner": []}
    state: MapState[str, dict[str, Any]] = MapState(str, dict, default=lambda: constant)
    state["a"]["inner"].append(1)
    assert state["b"] == {"inner": []}
    commit(state)
    assert constant == {"inner": []}


@pytest.mark.parametrize(
    "look",
    [
        lambda state: state.get("x"),
        lambda state: "x" in state,
        lambda state: state.pop("x", None),
        lambda state: ("x", {"n": 0}) in state.items(),
        lambda state: "x" in state.keys(),  # noqa: SIM118 - keys() is tested
        lambda state: {"n": 7} in state.values(),
        len,
    ],
)
def test_looking_stores_nothing(
    state: MapState[str, dict[str, Any]], look: Callable[[MapState[str, dict[str, Any]]], Any]
) -> None:
    """Only `state[k]`, `setdefault` and assignment do."""
    assert look(state) in (None, False, 2)
    assert list(state) == ["a", "b"]
    assert commit(state) == {}


def test_what_get_found_may_be_changed_in_place(state: MapState[str, dict[str, Any]]) -> None:
    """It is the stored value, unlike its default."""
    state.get("a", {})["n"] = 9
    state.get("z", {})["n"] = 9
    commit(state)
    assert dict(state) == {"a": {"n": 9}, "b": {"n": 2}}


def test_deleting(state: MapState[str, dict[str, Any]]) -> None:
    """del, pop, popitem and clear; what is gone is gone, and may come back."""
    del state["a"]
    assert "a" not in state
    assert len(state) == 1
    with pytest.raises(KeyError):
        del state["a"]
    with pytest.raises(KeyError):
        state.pop("a")
    assert state.get("a") is None
    assert state["a"] == {"n": 0}
    assert state.pop("b") == {"n": 2}
    assert state.popitem() == ("a", {"n": 0})
    assert len(state) == 0
    state["c"] = {"n": 3}
    state.clear()
    assert list(state) == []
    assert set(commit(state).values()) == {None}
    assert len(state) == 0


def test_a_missing_key_without_default_is_an_error() -> None:
    """Deleted in this batch is as missing as never there."""
    state = MapState(str, int)
    state["a"] = 1
    commit(state)
    del state["a"]
    for key in ("a", "b"):
        with pytest.raises(KeyError):
            state[key]
    assert dict(state) == {}


def test_setdefault_and_update(state: MapState[str, dict[str, Any]]) -> None:
    """The given default, not the map's."""
    assert state.setdefault("a", {"n": 9}) == {"n": 1}
    state.setdefault("c", {"n": 9})["n"] += 1
    state.update(d={"n": 4})
    commit(state)
    assert state["c"] == {"n": 10}
    assert state["d"] == {"n": 4}


def test_iteration_is_in_the_order_of_the_keys() -> None:
    """Committed, staged and live ones alike, in any order of arrival (attack B14)."""
    state = MapState(str, int)
    store = state.__snapreplay_store__()
    for key in ("long-key", "b"):
        state[key] = 1
    commit(state)
    state["aa"] = 2
    all_of(store.staging())
    state["a"] = 3
    state["b"] = 4
    del state["long-key"]
    assert list(state.keys()) == ["a", "aa", "b"]
    assert list(state.items()) == [("a", 3), ("aa", 2), ("b", 4)]
    assert list(state.values()) == [3, 2, 4]


def test_changing_while_iterating_is_defined(state: MapState[str, dict[str, Any]]) -> None:
    """Deleted keys are left out, added ones not seen, values reached may be changed in place."""
    seen = []
    for key, value in state.items():
        seen.append(key)
        value["n"] += 10
        state["0" + key] = {"n": 0}
        state.pop("b", None)
    assert seen == ["a"]
    commit(state)
    assert dict(state) == {"a": {"n": 11}, "0a": {"n": 0}}


@pytest.mark.parametrize(
    "make",
    [
        lambda: MapState(str, dict, default=lambda: {"a": (1, 2)}),
        lambda: MapState(str, dict, default=lambda: {"a": object()}),
        lambda: MapState(str, int, default=str),  # type: ignore[arg-type]
        lambda: MapState(str, Account, default=dict),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_work_is_refused_at_construction(make: Callable[[], object]) -> None:
    """Before any record is read."""
    with pytest.raises(UsageError, match="MapState"):
        make()


@pytest.mark.parametrize("key_type", [str, int])
def test_a_map_is_not_copied(key_type: Any) -> None:
    """A copy would be the same entries under a second name, which differs from a copy of a dict."""
    state: MapState[Any, int] = MapState(key_type, int)
    state[key_type(1)] = 7
    with pytest.raises(RecordError, match=r"^state cannot be copied") as raised:
        copy.copy(state)
    assert "`dict(state)`" in str(raised.value.hint)
    assert dict(state) == {key_type(1): 7}


def test_none_is_a_value() -> None:
    """It is not the absence of one."""
    state: MapState[str, Any] = MapState(str, Any)
    state["a"] = None
    assert len(commit(state)) == 1
    assert "a" in state
    assert state["a"] is None
    assert state.pop("a", 5) is None
    assert "a" not in state

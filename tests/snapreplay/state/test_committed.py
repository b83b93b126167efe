"""The last committed batch, seen from outside."""

from typing import Any

import pytest

from snapreplay.errors import RecordError, StopError, UsageError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from tests.support.batches import commit

State = MapState[str, dict[str, Any]]


@pytest.fixture
def state() -> State:
    """Holds aa: 1 and b: 2, committed."""
    made: State = MapState(str, dict)
    made.update({"aa": {"n": 1}, "b": {"n": 2}})
    store = made.__snapreplay_store__()
    commit(store)
    return made


def test_a_range_of_a_map_without_order_is_refused(state: State) -> None:
    """As that of the state; bounds are checked alike."""
    with pytest.raises(UsageError, match="does not keep its keys in order"):
        state.__snapreplay_store__().committed_view().range()
    ordered = MapState(str, int, ordered=True).__snapreplay_store__().committed_view()
    wrong: Any = 5
    with pytest.raises(RecordError, match="5 is no bound of a str"):
        ordered.range(start=wrong)


def test_changing_what_it_returns_changes_nothing(state: State) -> None:
    """Each access decodes anew."""
    view = state.__snapreplay_store__().committed_view()
    view["b"]["n"] = 9
    assert view["b"] == {"n": 2}
    assert state["b"] == {"n": 2}
    assert not hasattr(view, "__setitem__")


def test_a_missing_key_is_an_error_even_with_a_default() -> None:
    """Reading from outside stores nothing."""
    view = MapState(str, int, default=int).__snapreplay_store__().committed_view()
    with pytest.raises(KeyError):
        view["a"]
    assert view.get("a") is None
    with pytest.raises(RecordError):
        view[1]  # type: ignore[index]


def test_bytes_of_another_type_are_named(state: State) -> None:
    """As in the state itself."""
    other = MapState(str, int).__snapreplay_store__()
    store = state.__snapreplay_store__()
    other.load(all_of(store.shards.mark().slicing(1000)))
    with pytest.raises(StopError, match=r"state\['b'\] was written as a type other than"):
        other.committed_view()["b"]

"""The last committed batch, seen from outside."""

from typing import Any

import pytest

from snapreplay.errors import RecordError, StopError, UsageError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of

State = MapState[str, dict[str, Any]]


@pytest.fixture
def state() -> State:
    """Holds aa: 1 and b: 2, committed."""
    made: State = MapState(str, dict)
    made.update({"aa": {"n": 1}, "b": {"n": 2}})
    store = made.__snapreplay_store__()
    all_of(store.staging())
    all_of(store.sealing())
    store.merge()
    return made


def test_only_committed_batches_are_seen(state: State) -> None:
    """Not what is live, staged or sealed; a merge shows at once."""
    store = state.__snapreplay_store__()
    view = store.committed_view()
    state["b"]["n"] = 3
    state["c"] = {"n": 3}
    assert view["b"] == {"n": 2}
    all_of(store.staging())
    all_of(store.sealing())
    assert dict(view) == {"b": {"n": 2}, "aa": {"n": 1}}
    assert len(view) == 2
    store.merge()
    assert view["b"] == {"n": 3}
    assert len(view) == 3
    assert sorted(view) == ["aa", "b", "c"]


def test_a_range_has_what_the_batches_in_progress_delete() -> None:
    """In its order: deleted in the sealed batch, staged, or a moment ago; not what they add."""
    state = MapState(str, int, ordered=True)
    store = state.__snapreplay_store__()
    view = store.committed_view()
    state.update(dict.fromkeys("abcde", 1))
    assert list(view.range()) == []
    all_of(store.staging())
    all_of(store.sealing())
    store.merge()
    for key, new in zip("abc", "xyz", strict=True):
        del state[key]
        state[new] = 2
        assert [key for key, _ in view.range()] == [*"abcde"]
        assert [key for key, _ in view.range(start="b", end="e", reverse=True)] == [*"dcb"]
        all_of(store.staging())
        if key == "a":
            all_of(store.sealing())
        assert list(view.range(prefix="c")) == [("c", 1)]
    store.merge()
    assert [key for key, _ in view.range()] == [*"bcdex"]


def test_a_range_of_a_map_without_order_is_refused(state: State) -> None:
    """As that of the state; bounds are checked alike."""
    with pytest.raises(UsageError, match="does not keep its keys in order"):
        state.__snapreplay_store__().committed_view().range()
    ordered = MapState(str, int, ordered=True).__snapreplay_store__().committed_view()
    wrong: Any = 5
    with pytest.raises(RecordError, match="5 is no bound of a str"):
        ordered.range(start=wrong)


def test_it_is_seen_also_during_a_snapshot(state: State) -> None:
    """Frozen shards and what lies on top of them together."""
    store = state.__snapreplay_store__()
    cursor = store.mark()
    del state["b"]
    state["c"] = {"n": 3}
    all_of(store.staging())
    all_of(store.sealing())
    store.merge()
    for _ in range(2):
        assert dict(store.committed_view()) == {"c": {"n": 3}, "aa": {"n": 1}}
        assert "b" not in store.committed_view()
        cursor.release()


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
    other.load(all_of(store.mark().slicing(1000)))
    with pytest.raises(StopError, match=r"state\['b'\] was written as a type other than"):
        other.committed_view()["b"]

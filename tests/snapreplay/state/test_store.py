"""Tests of the way from what a factory made to a store."""

import pytest

from snapreplay.errors import UsageError
from snapreplay.state.map import MapState
from snapreplay.state.objects import ObjectStore
from snapreplay.state.store import store_of
from tests.snapreplay.state.test_objects import Book


def test_a_map_can_be_rolled_back_and_keeps_its_changes() -> None:
    """A plain one as several."""
    state = MapState(str, int)
    store = store_of(state)
    assert store.view is state
    assert store.keeps_changes
    assert store.can_roll_back
    assert store.can_drop


def test_any_other_state_is_wrapped() -> None:
    """If it has the two methods."""
    book = Book()
    store = store_of(book)
    assert isinstance(store, ObjectStore)
    assert store.view is book


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "{} cannot be the state of a partition: it has no snapshot and no restore"),
        (None, "None cannot be the state"),
        (Book, "the class Book cannot be the state"),
        (MapState, "the class MapState cannot be the state"),
    ],
)
def test_anything_else_is_refused_with_the_way_out(state: object, message: str) -> None:
    """Also a class where an object is meant."""
    with pytest.raises(UsageError) as caught:
        store_of(state)
    assert message in caught.value.message
    assert "MapState(str, ...)" in caught.value.hint

"""The committed state as a program sees it."""

from types import SimpleNamespace
from typing import Any, assert_type

import pytest

from snapreplay.state.map import MapState
from snapreplay.state.view import MapView, StoresView


class Shop:
    """A state of two maps, as a handler sees it."""

    items: MapState[str, int]
    carts: MapState[str, list[str]]


def test_a_state_of_several_maps_has_a_view_of_each():
    """By its name; or typed, by the attribute. What there is not is no map."""
    committed = SimpleNamespace(items={"a": 1}, carts={"x": ["a"]})
    view: StoresView[Shop] = StoresView(3, lambda: committed)
    assert view.items["a"] == 1
    carts = view.of(lambda shop: shop.carts)
    assert_type(carts, MapView[str, list[str]])
    assert dict(carts) == {"x": ["a"]}
    committed.carts = {}
    assert len(carts) == 0, "it looks again"
    with pytest.raises(AttributeError, match="offers"):
        len(view.offers)
    committed.partition = {"p": 1}
    named: StoresView[Any] = view
    assert dict(named.of(lambda state: state.partition)) == {"p": 1}

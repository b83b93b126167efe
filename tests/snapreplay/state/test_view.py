"""The committed state as a program sees it."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, assert_type

import pytest

from snapreplay.errors import PartitionNotLive
from snapreplay.state.map import MapState
from snapreplay.state.view import MapView, StoresView


def test_a_map_view_is_a_read_only_mapping():
    """All of Mapping, nothing that writes."""
    view: MapView[str, int] = MapView(3, lambda: {"a": 1, "b": 2})
    assert isinstance(view, Mapping)
    assert (view["a"], view.get("c", 0), list(view), len(view)) == (1, 0, ["a", "b"], 2)
    assert (view == {"a": 1, "b": 2}, "a" in view, "c" in view) == (True, True, False)
    assert (view.partition, repr(view)) == (3, "<MapView of partition 3>")
    with pytest.raises(TypeError):
        view["a"] = 2  # type: ignore[index]


def test_nothing_is_never_an_empty_map():
    """While there is no state to look at, each access says why."""

    def look():
        raise PartitionNotLive(3, "it is loading")

    view: MapView[str, int] = MapView(3, look)
    for access in (lambda: view.get("a"), lambda: len(view), lambda: list(view), lambda: "a" in view, view.range):
        with pytest.raises(PartitionNotLive):
            access()


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

"""The committed state as a program sees it."""

from collections.abc import Mapping

import pytest

from snapreplay.errors import PartitionNotLive
from snapreplay.state.view import MapView


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
    for access in (
        lambda: view.get("a"),
        lambda: len(view),
        lambda: list(view),
        lambda: "a" in view,
    ):
        with pytest.raises(PartitionNotLive):
            access()

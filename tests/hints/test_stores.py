"""Hints about a state of several stores: what is refused, then the same as the hint says, which is taken."""

from collections.abc import Callable
from typing import Any

import pytest

from snapreplay import MapState, Stores
from snapreplay.state.store import store_of
from tests.hints.following import refused_then_taken
from tests.hints.registry import carries_out

ONE_MAP = MapState(str, int)
WRONG: Any = 7


def stores_made() -> Any:
    """A state that a partition has."""
    made = Stores(n=MapState(str, int))
    store_of(made)
    return made


CASES: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
    "what is a store": (
        "keep it in a MapState", lambda: Stores(n=WRONG), lambda: Stores(n=MapState(str, int)),
    ),
    "a store's name": (
        "use up to 64 letters, digits and underscores", lambda: Stores(_n=MapState(str, int)),
        lambda: Stores(n=MapState(str, int)),
    ),
    "a store for good": (
        "`state.n.clear()`", lambda: setattr(stores_made(), "n", MapState(str, int)),
        lambda: stores_made().n.update(x=1),
    ),
    "a store that stays": (
        "`state.n.clear()` deletes", lambda: delattr(stores_made(), "n"), lambda: stores_made().n.update(x=1),
    ),
    "a store at least": (
        "Stores(items=MapState(str, dict))", lambda: store_of(Stores()),
        lambda: store_of(Stores(items=MapState(str, dict))),
    ),
    "a map for each store": (
        "make one for each", lambda: store_of(Stores(a=ONE_MAP, b=ONE_MAP)),
        lambda: store_of(Stores(a=MapState(str, int), b=MapState(str, int))),
    ),
    "a store to retire": (
        "that the app had before and does not have any more",
        lambda: store_of(Stores(a=MapState(str, int), retired=("a",))),
        lambda: store_of(Stores(a=MapState(str, int), retired=("b",))),
    ),
    "names of retired stores": (
        'use `retired=("offers",)`', lambda: store_of(Stores(a=MapState(str, int), retired="offers")),
        lambda: store_of(Stores(a=MapState(str, int), retired=("offers",))),
    ),
}  # fmt: skip


@carries_out(
    "snapreplay/state/stores.py::Stores.__setattr__",
    "snapreplay/state/stores.py::Stores.__delattr__",
    "snapreplay/state/stores.py::Stores._checked",
    "snapreplay/state/stores.py::_names",
)
@pytest.mark.parametrize("name", CASES)
def test_stores_are_taken_once_they_are_as_the_hint_says(name: str) -> None:
    """Refused with this hint; done, and nothing is refused any more."""
    refused_then_taken(*CASES[name])

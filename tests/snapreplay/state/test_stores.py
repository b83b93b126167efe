"""A state of several stores as handlers see it."""

from typing import Any

import pytest

from snapreplay import App, MapState, Out, Record, Stores, Topic
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.steps import all_of
from snapreplay.state.stores import maps_of, store_of
from snapreplay.testing import Harness

ORDERS, SHIPPED = Topic("orders"), Topic("shipped")


class Shop(Stores):
    """The typed form; its methods are handlers' helpers."""

    def __init__(self) -> None:
        self.items = MapState(str, int, default=int)
        self.carts = MapState(str, list[str], default=list)

    def sold(self) -> int:
        """Return what is in all carts."""
        return sum(map(len, self.carts.values()))


def shop(state: Any = Shop) -> App[Any]:
    app: App[Any] = App("shop", inputs=[ORDERS], outputs=[SHIPPED], state=state)

    @app.handler(ORDERS)
    def on_order(record: Record[str, Any], state: Any, out: Out) -> None:
        state.items[record.value] += 1
        state.carts[record.key].append(record.value)
        if record.value == "rotten":
            raise ValueError(record.value)
        out.send(SHIPPED, key=record.key, value=[state.items[record.value], state.stream_time_ms])

    return app


def short() -> Stores:
    return Stores(carts=MapState(str, list, default=list), items=MapState(str, int, default=int))


@pytest.mark.parametrize("state", [Shop, short])
def test_both_forms_are_one_state(state: Any) -> None:
    """One batch changes both stores or none; a crash restores both, by changes and by replay."""
    harness = Harness(shop(state))
    harness.feed(ORDERS, key="ada", value="tea", timestamp_ms=7)
    harness.snapshot()
    harness.feed(ORDERS, key="bob", value="tea")
    before = harness.digest
    with pytest.raises(Exception, match="rotten"):
        harness.feed(ORDERS, key="bob", value="rotten")
    assert harness.digest == before
    harness.crash()
    assert (dict(harness.state.items), len(harness.state.carts)) == ({"tea": 2}, 2)
    assert [sent.value for sent in harness.outputs(SHIPPED)] == [[1, 7], [2, 8]]


def test_errors_name_the_store() -> None:
    """A key of another type, a value that does not read back, one object in two stores."""
    state = Stores(a=MapState(str, Any), b=MapState(str, list))
    with pytest.raises(Exception, match=r"state\.a key 1 is of type int"):
        state.a[1] = 1
    state.a["x"], state.b["k"] = 1, [(1, 2)]
    assert refused_by(state).startswith("state.b['k'][0] is tuple")
    one: list[Any] = []
    state.b["k"], state.a["x"] = one, one
    assert refused_by(state) == "state.b['k'] and state.a['x'] hold the same object"
    state.a["x"], state.b["k"] = {"deep": one}, [one]
    assert refused_by(state) == "state.b['k'][0] and state.a['x']['deep'] hold the same object"


def refused_by(state: Stores) -> str:
    """Nothing is lost by the attempt; the batch is rolled back."""
    store = store_of(state)
    with pytest.raises(RecordError) as refused:
        all_of(store.staging())
    assert store.digest is not None
    assert len(state.a) + len(state.b) == 2
    store.rollback()
    assert len(state.a) + len(state.b) == 0
    return refused.value.message


def test_an_unknown_name_is_reported_with_those_that_there_are() -> None:
    """In handlers and in views."""
    state = short()
    with pytest.raises(AttributeError, match="Stores has no store 'itemz'; it has carts, items"):
        _ = state.itemz
    view = store_of(state).committed_view()
    with pytest.raises(AttributeError, match="no store 'itemz'; it has carts, items"):
        _ = view.itemz
    assert dict(view.items) == {}


def test_maps_are_in_the_order_of_their_names() -> None:
    """In any order of their creation."""
    assert list(maps_of(short())) == ["carts", "items"]
    assert list(maps_of(MapState(str, int))) == [""]
    assert maps_of(object()) == {}
    assert repr(Shop()).startswith("<Shop carts=<MapState str → list, 0 entries>")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "{} cannot be the state of a partition"),
        (None, "None cannot be the state"),
        (dict, "the class dict cannot be the state"),
        (MapState, "the class MapState cannot be the state"),
    ],
)
def test_anything_else_is_refused_with_the_way_out(state: object, message: str) -> None:
    """Also a class where an object is meant."""
    with pytest.raises(UsageError) as caught:
        store_of(state)
    assert message in caught.value.message
    assert "MapState(str, …)" in caught.value.hint

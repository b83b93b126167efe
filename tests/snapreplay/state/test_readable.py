"""Reading every stored entry as a handler would, in steps."""

from typing import Any

import msgspec
import pytest

from snapreplay.state.contract import StateChanges
from snapreplay.state.map import MapState
from snapreplay.state.mapstore import CHECK_ENTRIES
from snapreplay.state.stores import store_of
from snapreplay.state.values import StoredValueUnreadable
from tests.support.batches import commit


def test_what_is_stored_is_read_in_steps_while_batches_are_merged() -> None:
    """Every entry once; one that was replaced or deleted since it was seen does no harm any more."""
    state: MapState[str, Any] = MapState(str, Any)
    for number in range(3000):
        state[f"k{number}"] = number
    state["gone"], state["mended"] = "text", "text"
    changes = commit(store_of(state)).changes
    numbers: MapState[str, int] = MapState(str, int)
    store = numbers.__snapreplay_store__()
    store.apply_changes(changes)
    entries = store.shards.entries
    seen: list[tuple[bytes, bytes]] = []

    def then_changed(index: int, most: int | None = None) -> list[tuple[bytes, bytes]]:
        found = entries(index, most)
        seen.extend(found)
        for key in {"gone", "mended"} & {msgspec.msgpack.decode(key) for key, _ in found}:
            value = None if key == "gone" else msgspec.msgpack.encode(1)
            store.apply_changes({"default": {msgspec.msgpack.encode(key): value}})
        return found

    store.shards.entries = then_changed  # type: ignore[assignment] # writes between two steps
    steps = list(store.checking())
    assert sum(steps) == len(seen) == 3002
    assert max(steps) <= CHECK_ENTRIES


def changes_of(entries: dict[str, Any]) -> StateChanges:
    """Return the entries, encoded."""
    encode = msgspec.msgpack.encode
    return {"default": {encode(key): encode(value) for key, value in entries.items()}}


def test_a_stored_value_that_does_not_fit_is_named() -> None:
    """With its key and what the decoder says; a key likewise."""
    numbers = MapState(str, int).__snapreplay_store__()
    numbers.apply_changes(changes_of({"a": 1, "b": "text"}))
    with pytest.raises(StoredValueUnreadable, match=r"state\['b'\].*Expected `int`, got `str`"):
        list(numbers.checking())
    keys = MapState(int, int).__snapreplay_store__()
    keys.apply_changes(changes_of({"a": 1}))
    with pytest.raises(StoredValueUnreadable, match="the stored key 'a' is not of type int: Expected `int`"):
        list(keys.checking())

"""A map does the same with the compiled engine, which looks its keys up, and without it."""

import gc
import weakref
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapreplay.errors import RecordError, SnapreplayError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from tests.support.engines import needs_engine, pure, with_engine

__all__ = ["with_engine"]
pytestmark = [needs_engine, pytest.mark.usefixtures("with_engine")]


class Count(msgspec.Struct):
    n: int = 0


class Strict(msgspec.Struct):
    """Refuses a number when it is read, by errors of two classes."""

    n: int = 0

    def __post_init__(self):
        if self.n == 3:
            raise ValueError("three")
        if self.n == 4:
            raise KeyError("four")


class Name(StrEnum):
    ADA = "ada"


KEYS: dict[type, list[Any]] = {
    str: ["", "ada", "ä", "k" * 31, "k" * 32, "k" * 300, "k" * 70_000, "\ud800", Name.ADA, b"ada", 7, None],
    bytes: [b"", b"ada", b"\xff", b"k" * 256, b"k" * 70_000, "ada", bytearray(b"ada"), None],
}
DOINGS = (
    *("read", "read", "count", "set", "get", "delete", "in", "list"),
    *("stage", "seal", "merge", "drop", "rollback", "mark", "release", "misfit"),
)
STEPS = st.lists(st.tuples(st.sampled_from(DOINGS), st.integers(0, 11), st.integers(0, 4)), max_size=40)


SET_1, SET_2 = [("set", 1, 1)], [("set", 1, 2)]


class Side:
    """A map, and its store, and what a step shows of them."""

    def __init__(self, key_type, value_type, *, ordered):
        self.state = MapState(key_type, value_type, default=value_type, ordered=ordered)
        self.store: Any = self.state.__snapreplay_store__()
        self.store.clear(4)
        self.value_type, self.cursor = value_type, None

    def taken(self, what, key, number):
        try:
            shown = self._taken(what, key, number)
        except (SnapreplayError, LookupError, RuntimeError) as error:
            shown = type(error), str(error)
        try:
            live = [(each, repr(value)) for each, value in self.store.live.items()]
            return shown, live, len(self.state), self.store.shards.digest
        except RecordError as error:
            return shown, str(error)

    def _taken(self, what, key, number):
        state, store = self.state, self.store
        match what:
            case "read":
                return repr(state[key])
            case "count":
                state[key].n = number
            case "set":
                state[key] = self.value_type(n=number % 3)
            case "get":
                return repr(state.get(key))
            case "delete":
                del state[key]
            case "in":
                return key in state
            case "list":
                return [(each, repr(value)) for each, value in state.items()]
            case "stage":
                all_of(store.staging())
            case "seal":
                all_of(store.staging())
                return all_of(store.sealing())
            case "merge":
                store.merge()
            case "drop":
                store.drop()
            case "rollback":
                store.rollback()
            case "mark":
                if self.cursor is None and not store.is_sealed:
                    self.cursor = store.shards.mark()
            case "release":
                if self.cursor is not None:
                    self.cursor.release()
                    self.cursor = None
            case _:  # "misfit": as an older version, or one with a ttl, has written it
                stamp = b"\xc1" + bytes(8) if number % 2 else b""
                stored = stamp + msgspec.msgpack.encode({"n": number if number > 2 else "text"})
                if not store.is_sealed:
                    store.apply_changes({"default": {store.encoded_key(key): stored}})
        return None


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
@pytest.mark.parametrize("value_type", [Count, Strict])
@pytest.mark.parametrize("key_type", list(KEYS), ids=lambda each: each.__name__)
@example([*SET_1, ("seal", 1, 0), ("merge", 1, 0), *SET_2, ("stage", 1, 0), ("read", 1, 0)])
@example([*SET_1, ("seal", 1, 0), ("merge", 1, 0), ("delete", 1, 0), ("stage", 1, 0), ("read", 1, 0)])
@given(STEPS)
@settings(max_examples=60)
def test_the_engine_finds_what_python_finds(key_type, value_type, ordered, steps):
    """Keys of all kinds, in every layer: live, staged, sealed, committed, beside a snapshot, and values that misfit."""
    with pure():
        expected = Side(key_type, value_type, ordered=ordered)
    found = Side(key_type, value_type, ordered=ordered)
    for what, place, number in steps:
        key = KEYS[key_type][place % len(KEYS[key_type])]
        with pure():
            shown = expected.taken(what, key, number)
        assert found.taken(what, key, number) == shown, (what, key)


def test_what_interrupts_a_look_up_is_not_swallowed():
    """A signal comes once: a key that the engine gives back to Python would be looked up as if nothing had been."""
    asked = []

    class Interrupted(msgspec.Struct):
        n: int = 0

        def __post_init__(self):
            asked.append(self.n)
            if len(asked) == 1 and self.n:
                raise KeyboardInterrupt

    state: MapState[str, Any] = MapState(str, Interrupted)
    state.__snapreplay_store__().apply_changes({"default": {msgspec.msgpack.encode("a"): b"\x81\xa1n\x01"}})
    asked.clear()
    with pytest.raises(KeyboardInterrupt):
        _ = state["a"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_what_interrupts_a_look_up_beside_a_snapshot_is_not_swallowed(raised):
    """Python looks then, in two layers."""
    state: MapState[str, Any] = MapState(str, Count, default=Count)
    store = state.__snapreplay_store__()
    store.clear(1)
    store.shards.mark()
    lookup, asked = store.shards.lookups[0], []

    def interrupted(key):
        asked.append(key)
        if len(asked) == 1:
            raise raised
        return lookup(key)

    store.shards.lookups[0] = interrupted
    with pytest.raises(raised):
        _ = state["a"]


@pytest.mark.parametrize("key_type", [str, bytes])
def test_a_map_that_is_not_used_any_more_is_freed(key_type):
    """It, its store and what the engine keeps refer to each other."""
    state = MapState(key_type, Count, default=Count)
    assert state[key_type()].n == 0
    is_there = weakref.ref(state)
    del state
    gc.collect()
    assert is_there() is None


def test_a_map_that_its_author_has_changed_is_read_by_its_methods():
    """A subclass may have a `[]` of its own."""

    class Mine(MapState[str, Count]):
        def __getitem__(self, key):
            return super().__getitem__(key.lower())

    state = Mine(str, Count, default=Count)
    assert state["ADA"] is state["ada"]
    assert list(state) == ["ada"]

"""The engine's side of a map, against a model that copies dicts."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from snapreplay.errors import DamagedError, RecordError
from snapreplay.state import entry_index as index_module
from snapreplay.state import shards as shards_module
from snapreplay.state import staging as staging_module
from snapreplay.state.contract import Sealed, StateChanges
from snapreplay.state.cursor import ShardCursor
from snapreplay.state.digest import digest_of
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.values import StoredValueUnreadable
from tests.support.batches import commit, seal

Entries = dict[str, dict[str, Any]]

KEYS = st.sampled_from([f"k{i}" for i in range(12)])
VALUES = st.fixed_dictionaries({"n": st.integers(0, 3)}, optional={"l": st.lists(st.integers(0, 1), max_size=2)})
pack = msgspec.msgpack.Encoder().encode


def encoded(entries: Entries) -> dict[bytes, bytes]:
    return {pack(key): pack(value) for key, value in entries.items()}


def fresh(*, ordered: bool = False) -> tuple[MapState[str, dict[str, Any]], Any]:
    """A map of few, therefore crowded, shards, and its store."""
    state: MapState[str, dict[str, Any]] = MapState(str, dict, default=lambda: {"n": 0}, ordered=ordered)
    store = state.__snapreplay_store__()
    store.clear(4)
    return state, store


def fold(entries: dict[bytes, bytes], stores: StateChanges) -> dict[bytes, bytes]:
    """Fold as a reader of the log does."""
    for key, value in stores.get("default", {}).items():
        if value is None:
            del entries[key]
        else:
            entries[key] = value
    return entries


@contextmanager
def one_key_a_step() -> Iterator[None]:
    """Take one key a step, so that there is something between."""
    with (
        patch.object(staging_module, "BLOCK", 1),
        patch.object(shards_module, "BLOCK", 1),
        patch.object(index_module, "BLOCK", 1),
    ):
        yield


class Machine(RuleBasedStateMachine):
    """`live`, `staged`, `sealed` and `committed` are whole copies of the state, one per layer."""

    ordered = False

    def __init__(self) -> None:
        super().__init__()
        self.state, self.store = fresh(ordered=self.ordered)
        self.replicated, self.replica = fresh(ordered=self.ordered)
        self.committed: Entries = {}
        self.sealed: Entries | None = None
        self.changes: StateChanges = {}
        self.staged: Entries = {}
        self.live: Entries = {}
        self.cursor: ShardCursor | None = None
        self.image: Entries = {}
        self.read: dict[bytes, bytes] = {}

    # -- what handlers do

    @rule(key=KEYS, value=VALUES)
    def put(self, key: str, value: dict[str, Any]) -> None:
        self.state[key] = value
        self.live[key] = copy.deepcopy(value)

    @rule(key=KEYS)
    def change_in_place(self, key: str) -> None:
        self.state[key]["n"] += 1
        self.live.setdefault(key, {"n": 0})["n"] += 1

    @rule(key=KEYS)
    def there_and_back(self, key: str) -> None:
        if key in self.live:
            self.state[key]["n"] += 1
            self.state[key]["n"] -= 1

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        assert self.state.pop(key, None) == self.live.pop(key, None)

    @rule(key=KEYS)
    def look(self, key: str) -> None:
        assert (key in self.state) == (key in self.live)
        assert self.state.get(key) == self.live.get(key)

    # -- what the engine does

    @rule()
    def begin(self) -> None:
        self.store.begin()
        self.live = copy.deepcopy(self.staged)

    @rule()
    def stage(self) -> None:
        all_of(self.store.staging())
        self.staged = copy.deepcopy(self.live)

    @rule(key=KEYS)
    def fail_to_stage(self, key: str) -> None:
        self.state[key] = {"bad": (1, 2)}
        with pytest.raises(RecordError):
            all_of(self.store.staging())
        self.store.rollback()
        self.live = copy.deepcopy(self.staged)

    @precondition(lambda self: self.sealed is None)
    @rule(is_released=st.booleans())
    def seal(self, *, is_released: bool) -> None:
        self.stage()
        result = self.sealed_step_by_step(is_released=is_released)
        self.sealed = copy.deepcopy(self.staged)
        self.changes = dict(result.changes)
        before, after = encoded(self.committed), encoded(self.sealed)
        assert self.changes.get("default", {}) == {
            key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)
        }
        assert result.digest == digest_of(after.items())

    @rule(steps=st.integers(0, 12))
    def give_up_staging(self, steps: int) -> None:
        with one_key_a_step():
            touched = len(self.store.live)
            staging = self.store.staging()
            taken = len(list(islice(staging, min(steps, touched))))
            assert taken == min(steps, touched)
            staging.close()
        self.store.rollback()
        self.live = copy.deepcopy(self.staged)

    @precondition(lambda self: self.sealed is None)
    @rule(steps=st.integers(0, 12), is_released=st.booleans())
    def give_up_sealing(self, steps: int, *, is_released: bool) -> None:
        self.stage()
        with one_key_a_step():
            sealing = self.store.sealing()
            for _ in islice(sealing, steps):
                assert dict(self.store.committed_view()) == self.committed
                for refused in (self.store.shards.mark, self.store.merge):
                    with pytest.raises(RuntimeError):
                        refused()
                if is_released and self.cursor is not None:
                    self.give_up()
            sealing.close()
        self.drop()

    def sealed_step_by_step(self, *, is_released: bool) -> Sealed:
        with one_key_a_step():
            sealing = self.store.sealing()
            while True:
                try:
                    next(sealing)
                except StopIteration as end:
                    result: Sealed = end.value
                    return result
                if is_released and self.cursor is not None:
                    self.give_up()
                self.store.shards.settle()

    @precondition(lambda self: self.sealed is not None)
    @rule()
    def merge(self) -> None:
        self.store.merge()
        self.replica.apply_changes(self.changes)
        assert self.sealed is not None
        self.committed, self.sealed = self.sealed, None

    @rule()
    def drop(self) -> None:
        self.store.drop()
        self.sealed = None
        self.staged = copy.deepcopy(self.committed)
        self.live = copy.deepcopy(self.committed)

    @precondition(lambda self: self.sealed is None and self.cursor is None)
    @rule()
    def mark(self) -> None:
        self.cursor = self.store.shards.mark()
        self.image, self.read = copy.deepcopy(self.committed), {}

    @precondition(lambda self: self.cursor is not None)
    @rule(raw_bytes_max=st.integers(1, 60))
    def read_on(self, raw_bytes_max: int) -> None:
        assert self.cursor is not None
        slices = all_of(self.cursor.slicing(raw_bytes_max))
        for part in slices:
            assert not part.entries.keys() & self.read.keys()
            self.read |= part.entries
            sums = digest_of(part.entries.items())
            assert (part.digest_a, part.digest_b) == (sums.a, sums.b)
        if not slices:
            assert self.read == encoded(self.image)
            assert self.cursor.digest == digest_of(self.read.items())
            self.give_up()

    @precondition(lambda self: self.cursor is not None)
    @rule()
    def give_up(self) -> None:
        assert self.cursor is not None
        self.cursor.release()
        self.cursor = None

    # -- what must hold at all times

    @invariant()
    def the_view_is_the_live_copy(self) -> None:
        assert len(self.state) == len(self.live)
        assert list(self.state) == sorted(self.live)

    @invariant()
    def the_committed_view_and_the_replica_are_the_committed_copy(self) -> None:
        view = self.store.committed_view()
        assert (dict(view), len(view)) == (self.committed, len(self.committed))
        assert dict(self.replica.committed_view()) == self.committed
        assert self.replica.shards.digest == digest_of(encoded(self.committed).items())

    @invariant()
    def digest_and_size_are_true(self) -> None:
        base = encoded(self.committed)
        newest = base if self.sealed is None else encoded(self.sealed)
        assert self.store.shards.digest == digest_of(newest.items())
        assert self.store.shards.size_bytes == sum(len(k) + len(v) for k, v in newest.items())


TestModel = Machine.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40)


def test_changes_are_ordered_by_first_touch_and_real() -> None:
    """A→B→A over several stages is no change, nor is deleting what never was."""
    state, store = fresh()
    state["a"] = {"n": 1}
    commit(store)
    state["z"] = {"n": 1}
    all_of(store.staging())
    state["a"]["n"] = 2
    state["new"] = {"n": 1}
    all_of(store.staging())
    state["a"]["n"] = 1
    del state["new"]
    state["b"] = {"n": 1}
    state.pop("never", None)
    assert list(commit(store).changes["default"]) == [pack("z"), pack("b")]
    assert commit(store).changes == {}


def test_sealing_twice_is_refused() -> None:
    """One batch commits at a time; merging nothing is refused as well."""
    _, store = fresh()
    with pytest.raises(RuntimeError, match="no sealed batch"):
        store.merge()
    all_of(store.sealing())
    with pytest.raises(RuntimeError, match="a sealed batch waits"):
        all_of(store.sealing())
    with pytest.raises(RuntimeError, match="committed batches only"):
        store.shards.mark()


def test_clear_forgets_everything() -> None:
    """Live, staged, sealed and committed; the view keeps working."""
    state, store = fresh()
    state["a"]["n"] = 1
    seal(store)
    state["b"]["n"] = 1
    store.clock.stream_time_ms = 5
    store.clear()
    assert state.stream_time_ms == -1
    assert len(state) == 0
    assert store.shards.digest == digest_of([])
    assert store.shards.size_bytes == 0
    assert store.shard_count == 1024
    state["c"]["n"] = 1
    assert list(commit(store).changes["default"]) == [pack("c")]


def test_an_impossible_shard_count_is_damage() -> None:
    """It comes from a manifest."""
    _, store = fresh()
    for shard_count in (0, 3, -4, 2**20):
        with pytest.raises(DamagedError, match="power of two"):
            store.clear(shard_count)


@pytest.mark.parametrize("ordered", [False, True])
def test_iteration_names_a_key_of_another_type(*, ordered: bool) -> None:
    """The check at the restore may read a sample only. The error stops the partition: no record is at fault."""
    state: MapState[int, int] = MapState(int, int, ordered=ordered)
    state.__snapreplay_store__().apply_changes({"default": {pack("old"): pack(1)}})
    for iterate in (list, dict, lambda state: list(state.values())):
        with pytest.raises(StoredValueUnreadable, match="the stored key 'old' is not of type int"):
            iterate(state)

"""The engine's side of several stores, against dicts of dicts."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from snapreplay.errors import RecordError
from snapreplay.state.composite import CompositeCursor, Store
from snapreplay.state.contract import Sealed, UnknownStore
from snapreplay.state.digest import EMPTY, Digest, digest_of
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores, store_of
from tests.support.batches import commit

Entries = dict[str, dict[str, int]]

NAMES = st.sampled_from(["a", "b", "default"])
KEYS = st.sampled_from(["k1", "k2", "k3"])
pack = msgspec.msgpack.encode


def fresh(*names: str, retired: tuple[str, ...] = ()) -> tuple[Any, Store]:
    state = Stores(retired=retired, **{name: MapState(str, int) for name in names})
    return state, store_of(state)


def digest(entries: Entries) -> Digest:
    """Compute the digest by the definition in FORMAT.md, with nothing of what keeps it up."""
    total = EMPTY
    for name, inner in entries.items():
        pairs = [(pack(key), pack(value)) for key, value in inner.items()]
        total = total.plus(digest_of(pairs).in_store(name))
    return total


def copied(store: Store, other: Store) -> None:
    """Copy by a snapshot."""
    cursor = store.mark()
    other.clear(store.shard_count)
    while slices := all_of(cursor.slicing(20)):
        other.load(slices, cursor.store)
    cursor.release()


class Machine(RuleBasedStateMachine):
    """`live`, `sealed` and `committed` are whole copies. `old` is a store that the state has, and no map is for."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.store = fresh("a", "b", "default", retired=("old",))
        _, self.replica = fresh("a", "default")
        start: Entries = {"a": {}, "b": {}, "default": {}, "old": {"x": 1, "y": 2}}
        for store in (self.store, self.replica):
            store.clear(8)  # shards: a store has 1024 else, and each look goes through all of them
            store.apply_changes({"old": {pack(k): pack(v) for k, v in start["old"].items()}})
        self.committed, self.live = start, copy.deepcopy(start)
        self.sealed: Entries | None = None
        self.result: Sealed | None = None
        self.cursor: CompositeCursor | None = None
        self.retires = False

    @rule(name=NAMES, key=KEYS, value=st.integers(0, 3))
    def put(self, name: str, key: str, value: int) -> None:
        getattr(self.state, name)[key] = value
        self.live[name][key] = value

    @rule(name=NAMES, key=KEYS)
    def delete(self, name: str, key: str) -> None:
        getattr(self.state, name).pop(key, None)
        self.live[name].pop(key, None)

    @rule(name=NAMES)
    def fail_to_stage(self, name: str) -> None:
        """Nothing of any store is staged."""
        getattr(self.state, name)["k1"] = "no int"
        with pytest.raises(RecordError, match=rf"state\.{name}\['k1'\]"):
            all_of(self.store.staging())
        self.store.rollback()
        self.live = copy.deepcopy(self.sealed or self.committed)

    @rule()
    def retire(self) -> None:
        self.store.retire()
        self.retires = True

    @precondition(lambda self: self.sealed is None)
    @rule()
    def seal(self) -> None:
        all_of(self.store.staging())
        if self.retires:
            self.live.pop("old", None)
        self.result = all_of(self.store.sealing())
        self.sealed = copy.deepcopy(self.live)
        assert self.result.cleared == sorted(self.committed.keys() - self.sealed.keys())
        assert self.result.digest == digest(self.sealed)
        assert self.result.store_digests == self.store.store_digests

    @precondition(lambda self: self.sealed is not None)
    @rule()
    def merge(self) -> None:
        self.store.merge()
        assert self.result is not None
        assert self.sealed is not None
        self.replica.apply_changes(self.result.changes, self.result.cleared)
        self.committed, self.sealed = self.sealed, None

    @rule()
    def drop(self) -> None:
        self.store.drop()
        self.sealed = None
        self.live = copy.deepcopy(self.committed)

    @precondition(lambda self: self.sealed is None and self.cursor is None)
    @rule()
    def copy(self) -> None:
        _, other = fresh("b", "c")
        copied(self.store, other)
        assert other.digest == digest(self.committed)
        assert other.size_bytes == self.store.size_bytes

    @precondition(lambda self: self.sealed is None and self.cursor is None)
    @rule()
    def mark(self) -> None:
        self.cursor = self.store.mark()

    @precondition(lambda self: self.cursor is not None)
    @rule()
    def release(self) -> None:
        assert self.cursor is not None
        self.cursor.release()
        self.cursor = None

    @invariant()
    def the_views_are_the_copies(self) -> None:
        view = self.store.committed_view()
        for name in ("a", "b", "default"):
            assert dict(getattr(self.state, name)) == self.live[name]
            assert dict(getattr(view, name)) == self.committed[name]

    @invariant()
    def the_digest_is_that_of_the_copies(self) -> None:
        assert self.store.digest == digest(self.sealed or self.committed)
        assert self.replica.digest == digest(self.committed)


TestModel = Machine.TestCase
TestModel.settings = settings(max_examples=25, stateful_step_count=30)


def test_the_same_entry_in_another_store_is_another_state() -> None:
    """So is one that moved; an empty store is as if it were not there, and a default store alone is as if unnamed."""
    digests = []
    for name in ("a", "b", "default"):
        state, store = fresh("a", "b", "default")
        getattr(state, name)["k"] = 1
        digests.append(commit(store).digest)
    assert len(set(digests)) == 3
    alone: MapState[str, int] = MapState(str, int)
    alone["k"] = 1
    sealed = commit(store_of(alone))
    assert sealed.digest == digests[2]
    assert sealed.store_digests == {}
    assert sealed.changes.keys() == {"default"}


def test_a_store_that_the_app_does_not_have_is_kept_and_named() -> None:
    """Until `checking`; its entries stay in digest and snapshot. A retired one is let pass."""
    state, store = fresh("a", "old")
    state.a["k"], state.old["k"] = 1, 2
    before = commit(store).digest
    for retired, refused in (((), True), (("old",), False)):
        _, other = fresh("a", retired=retired)
        copied(store, other)
        assert other.digest == before
        again = fresh("a")[1]
        copied(other, again)
        assert again.digest == before
        if refused:
            with pytest.raises(UnknownStore, match=r"1 entry in the store 'old'.*it has a \("):
                list(other.checking())
        else:
            assert sum(other.checking()) == 1
    for timers in (None, ["ring"]):
        single = store_of(MapState(str, int), timers)
        copied(store, single)
        assert single.digest == before
        with pytest.raises(UnknownStore, match=r"'a'.*its state has no named stores") as told:
            list(single.checking())
        assert 'Stores(default=MapState(…), …, retired=("a",))' in told.value.hint


def test_what_was_cleared_is_freed_with_the_batches_that_follow() -> None:
    """Not all at once: a million entries take a tenth of a second."""
    state, store = fresh("a", "old")
    state.old.update({f"k{n}": n for n in range(5000)})
    commit(store)
    _, other = fresh("a", retired=("old",))
    copied(store, other)
    other.retire()
    assert commit(other).cleared == ["old"]
    assert other.digest == EMPTY
    left: Any = other
    counts = []
    while left.to_free:
        counts.append(len(left.to_free))
        assert commit(other).cleared == []
    assert len(counts) > 100


def test_a_store_is_freed_in_steps() -> None:
    """So is one that a drill throws away; then it is empty."""
    state, store = fresh("a", "b")
    state.a.update({f"k{n}": n for n in range(5000)})
    state.b["k"] = 1
    commit(store)
    steps, sizes = 0, []
    for _ in store.freeing():
        steps += 1
        sizes.append(store.size_bytes)
    assert steps > 100
    assert sizes[-1] == 0
    assert (store.digest, store.size_bytes) == (EMPTY, 0)

"""A map that keeps its keys in order, through all that happens to a batch."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from snapreplay.state import sorted_entries
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from tests.snapreplay.state.test_mapstore import KEYS, Machine, pack
from tests.support.batches import commit, seal


class OrderedMachine(Machine):
    """The same with keys that are kept in order, in small blocks; ranges are those of a sorted dict."""

    ordered = True

    def __init__(self) -> None:
        self.small = ExitStack()
        self.small.enter_context(patch.object(sorted_entries, "BLOCK_ENTRIES", 4))
        self.small.enter_context(patch.object(sorted_entries, "FIRST_PART_ENTRIES", 2))
        super().__init__()
        # A range of a committed view that is being read, and the keys that it began with and has not come to.
        self.reader: Iterator[tuple[str, Any]] = iter(())
        self.unread: list[str] = []
        self.reverse = False

    def teardown(self) -> None:
        self.small.close()

    @rule(
        start=KEYS | st.none(),
        end=KEYS | st.none(),
        prefix=st.sampled_from([None, "k", "k1", "x"]),
        reverse=st.booleans(),
        puts=st.lists(KEYS, max_size=2),
        deletes=st.lists(KEYS, max_size=2),
        then=st.sampled_from([None, "begin", "stage", "drop"]),
    )
    def read_a_range(
        self,
        start: str | None,
        end: str | None,
        prefix: str | None,
        reverse: bool,
        puts: list[str],
        deletes: list[str],
        then: str | None,
    ) -> None:
        """Read a range; after the first entry, others come and go, and the handler call may end. The range has the
        keys that were there and are not deleted, with their current values."""
        found = self.state.range(prefix=prefix, start=start, end=end, reverse=reverse)
        wanted = sorted(
            (
                key
                for key in self.live
                if key.startswith(prefix or "") and (start is None or start <= key) and (end is None or key < end)
            ),
            reverse=reverse,
        )
        read = [*islice(found, 1)]
        for key in puts:
            self.put(key, {"n": 9})
        for key in deletes:
            self.delete(key)
        if then is not None:
            getattr(self, then)()
        read += found
        assert [key for key, _ in read[1:]] == [k for k in wanted[1:] if k in self.live]
        assert [key for key, _ in read[:1]] == wanted[:1]
        assert all(value == self.live[key] for key, value in read[1:])

    @rule()
    def forget_the_order(self) -> None:
        """Forget the order as a restore does; it is found again at the first use."""
        self.store._index.entries = None

    @invariant()
    def the_order_has_no_other_keys(self) -> None:
        """A key that was rolled back would be skipped, but stay for ever. The values are those of the shards."""
        index = self.store.entries
        found = {key: value for part in index.within() for key, value in zip(*part, strict=True)}
        assert list(found) == sorted(self.live)
        assert found == {key: self.store._sealed_value(pack(key)) for key in found}

    @rule(start=KEYS | st.none(), end=KEYS | st.none(), reverse=st.booleans())
    def read_a_committed_range(self, start: str | None, end: str | None, reverse: bool) -> None:
        """Read a committed range, while the batch in progress and the waiting batch add and delete."""
        found = self.store.committed_view().range(start=start, end=end, reverse=reverse)
        assert list(found) == [
            (key, self.committed[key])
            for key in sorted(self.committed, reverse=reverse)
            if (start is None or start <= key) and (end is None or key < end)
        ]

    @rule(reverse=st.booleans())
    def open_a_committed_range(self, reverse: bool) -> None:
        """The other rules run while it is read."""
        self.reader = self.store.committed_view().range(reverse=reverse)
        self.unread, self.reverse = sorted(self.committed), reverse

    @rule(count=st.integers(1, 4))
    def read_on_in_the_committed_range(self, count: int) -> None:
        """It skips no key that is still committed, and shows no value that is not committed."""
        for _ in range(count):
            key, value = next(self.reader, ("", None))
            assert self.committed.get(key) == value
            to_come = [k for k in self.unread if key and (k < key if self.reverse else k > key)]
            passed = set(self.unread) - {key, *to_come}
            assert not passed & self.committed.keys()
            self.unread = to_come

    @invariant()
    def the_committed_view_is_in_order(self) -> None:
        assert list(self.store.committed_view().range()) == sorted(self.committed.items())

    @invariant()
    def the_replica_is_in_order(self) -> None:
        assert list(self.replicated) == sorted(self.committed)


def test_a_value_that_cannot_be_changed_in_place_is_not_kept() -> None:
    """A range of such values costs nothing when the batch ends. It still shows the batch in progress."""
    state: MapState[tuple[str, int], int] = MapState(tuple[str, int], int, ordered=True)
    store = state.__snapreplay_store__()
    state.update({("tea", n): n for n in range(20)})
    commit(store)
    assert dict(state.range(prefix=("tea",))) == {("tea", n): n for n in range(20)}
    assert not store.live
    state["tea", 3], state["tea", 30] = 33, 30
    del state["tea", 4]
    all_of(store.staging())  # in the middle of the batch: what follows lies on top
    state["tea", 5] = 55
    del state["tea", 6]
    wanted = {("tea", n): n for n in (*range(20), 30) if n not in (4, 6)}
    wanted |= {("tea", 3): 33, ("tea", 5): 55}
    assert list(state.range()) == sorted(wanted.items())
    assert dict(state.items()) == wanted


def test_a_range_that_outlives_its_call_shows_the_current_values() -> None:
    """A handler may keep it. The batch continues, is sealed, and the next one begins."""
    state: MapState[str, int] = MapState(str, int, ordered=True)
    store = state.__snapreplay_store__()
    state.update(dict.fromkeys("abcdef", 1))
    commit(store)
    found = state.range()
    assert next(found) == ("a", 1)
    state["b"] = 2
    del state["c"]
    all_of(store.staging())
    assert next(found) == ("b", 2)
    state["d"] = 2
    seal(store)
    assert next(found) == ("d", 2)
    store.drop()
    assert list(found) == [("e", 1), ("f", 1)]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_view_that_is_read_across_commits_shows_what_is_committed(*, reverse: bool) -> None:
    """It has the keys that were there when it began and are not deleted, with their current values."""
    state: MapState[str, int] = MapState(str, int, ordered=True)
    store = state.__snapreplay_store__()

    def sealing(values: dict[str, int]) -> None:
        state.update(values)
        seal(store)

    sealing(dict.fromkeys("abcd", 1))
    store.merge()
    found = store.committed_view().range(reverse=reverse)
    first, second, third, last = sorted("abcd", reverse=reverse)
    assert next(found) == (first, 1)
    sealing({second: 2, third: 2, "e": 2})
    assert next(found) == (second, 1)
    store.merge()
    assert next(found) == (third, 2)
    del state[last]
    sealing({})
    store.merge()
    assert list(found) == []


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_view_that_is_read_across_a_drop_shows_only_what_is_committed(*, is_sealed: bool, deletes: bool) -> None:
    """Whether it began before the batch was sealed or after, and with later additions and removals."""
    state: MapState[int, int] = MapState(int, int, ordered=True)
    store = state.__snapreplay_store__()
    state.update(dict.fromkeys(range(0, 40, 2), 1))
    commit(store)
    state.update(dict.fromkeys(range(40), 2))
    if deletes:
        del state[38]
    found = store.committed_view().range()
    seal(store)
    if is_sealed:
        found = store.committed_view().range()
    assert next(found) == (0, 1)
    state[-1] = 3
    store.drop()
    assert list(found) == [(key, 1) for key in range(2, 40, 2)]


TestOrdered = OrderedMachine.TestCase
TestOrdered.settings = settings(max_examples=60, stateful_step_count=40)

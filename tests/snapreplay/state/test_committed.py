"""The last committed batch, seen from outside."""

from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from tests.support.batches import commit

State = MapState[str, dict[str, Any]]


@pytest.fixture
def state() -> State:
    """Holds aa: 1 and b: 2, committed."""
    made: State = MapState(str, dict)
    made.update({"aa": {"n": 1}, "b": {"n": 2}})
    store = made.__snapreplay_store__()
    commit(store)
    return made


KEYS = st.text("ab\x00", max_size=3)


@pytest.mark.parametrize("ordered", [False, True])
@given(
    st.dictionaries(KEYS, st.integers(0, 9)),
    st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9)), max_size=20),
    st.sampled_from(["staged", "sealed", "marked"]),
    st.integers(1, 4),
)
def test_pages_are_the_committed_entries(
    ordered: bool, before: dict[str, int], batch: list[tuple[str, int | None]], stage: str, page: int
) -> None:
    """Each once, even if the batch in progress has added, changed and deleted; also while a snapshot is written."""
    state = MapState(str, int, ordered=ordered)
    store = state.__snapreplay_store__()
    if stage == "marked":
        state.update({"a": 10, "b": 10, "c": 10})
        commit(store)
        store.shards.mark()
        state.clear()
    state.update(before)
    commit(store)
    for key, value in batch:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    all_of(store.staging())
    if stage != "staged":
        all_of(store.sealing())
    view, found, after = store.committed_view(), list[tuple[str, bytes]](), None
    while some := list(islice(view.stored_entries(after=after), page)):
        found += some
        after = some[-1][0]
        assert len(found) <= len(before)
    assert {key: msgspec.msgpack.decode(value) for key, value in found} == before
    assert len(found) == len(before)
    assert not ordered or [key for key, _ in found] == sorted(before)


def test_a_page_continues_behind_a_key_that_is_gone() -> None:
    """What is there all the time comes once, in both kinds of maps."""
    for ordered in (False, True):
        state = MapState(int, int, ordered=ordered)
        store = state.__snapreplay_store__()
        state.update({n: n for n in range(50)})
        commit(store)
        first = [key for key, _ in islice(store.committed_view().stored_entries(), 20)]
        del state[first[-1]]
        state[1000] = 0
        commit(store)
        rest = [key for key, _ in store.committed_view().stored_entries(after=first[-1])]
        assert sorted({*first, *rest} - {1000}) == list(range(50))
        assert not {*first} & {*rest}

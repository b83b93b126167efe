"""Keys in order, against a sorted list."""

import gc
import random
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.errors import RecordError, UsageError
from snapreplay.state import sorted_entries as module
from snapreplay.state.map import MapState
from snapreplay.state.sorted_entries import KeyBounds, SortedEntries, SortedPart, sorting
from snapreplay.state.steps import all_of
from tests.support.batches import commit

STEPS = st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.booleans()), max_size=80)


def entries_of(parts: Iterable[SortedPart[Any, Any]]) -> list[tuple[Any, Any]]:
    return [entry for part in parts for entry in zip(*part, strict=True)]


@given(STEPS, st.integers(1, 4))
def test_what_is_being_read_does_not_change(steps: Any, block_entries: int) -> None:
    """Keys come and go, also some that are there or gone already. Readers begin in between and end last. Each sees the
    keys that were there when it began; their values may be newer."""
    with patch.object(module, "BLOCK_ENTRIES", block_entries), patch.object(module, "FIRST_PART_ENTRIES", 1):
        entries: SortedEntries[int, int] = SortedEntries()
        model: dict[int, int] = {}
        readers: list[tuple[Any, list[int]]] = []
        for number, (key, present, read) in enumerate(steps):
            if present:
                entries.put(key, number)
                model[key] = number
            else:
                entries.remove(key)
                model.pop(key, None)
            if read:
                reverse = key % 2 == 0
                wanted = sorted(model, reverse=reverse)
                now = entries_of(entries.within(reverse=reverse))
                assert now == [(key, model[key]) for key in wanted]
                reader = entries.within(reverse=reverse)
                assert entries_of(islice(reader, 1)) == now[:1]
                readers.append((reader, wanted[1:]))
        for reader, wanted in readers:
            assert [key for key, _ in entries_of(reader)] == wanted
    assert not any(map(gc.is_tracked, chain(*entries._blocks)))


WORDS = st.text("ab", max_size=3)


@given(st.sets(WORDS), WORDS | st.none(), WORDS | st.none(), WORDS | st.none(), st.booleans())
@example({"a", "b", "ba"}, "b", "a", None, False)
@example({"a", "ab", "b"}, "a", None, "bb", False)
@example({"a", "b"}, None, "b", "a", False)
def test_bounds_are_half_open(given_keys: set[str], prefix: Any, start: Any, end: Any, reverse: bool) -> None:
    """Also where they are not among the keys, outside of each other, or the wrong way round."""
    with patch.object(module, "BLOCK_ENTRIES", 4):
        entries: SortedEntries[str, str] = all_of(sorting([{key: key * 2 for key in given_keys}]))
        found = entries_of(entries.within(KeyBounds(prefix, start, end), reverse=reverse))
    wanted = (
        key
        for key in given_keys
        if key.startswith(prefix or "") and (start is None or start <= key) and (end is None or key < end)
    )
    assert found == [(key, key * 2) for key in sorted(wanted, reverse=reverse)]


TEXTS = st.sampled_from(["", "a", "a\0", "a\0\0", "a\x01", "aa", "b", "\0"])
PAIRS = st.tuples(TEXTS, st.integers(-2, 2) | st.sampled_from([-(2**63), 2**63 - 1, 255]))
PARTS = PAIRS | st.tuples(TEXTS) | st.just(()) | st.none()


@given(st.sets(PAIRS), PARTS, PARTS, PARTS, st.booleans())
def test_a_range_of_tuples_is_that_of_python(
    given_keys: set[tuple[str, int]], prefix: Any, start: Any, end: Any, reverse: bool
) -> None:
    """By first parts, from and up to whole keys or first parts; in the batch, of a committed view, and sorted again."""
    state: MapState[tuple[str, int], int] = MapState(tuple[str, int], int, ordered=True)
    store = state.__snapreplay_store__()
    state.update(dict.fromkeys(given_keys, 1))
    wanted = sorted(
        (
            key
            for key in given_keys
            if (prefix is None or key[: len(prefix)] == prefix)
            and (start is None or start <= key)
            and (end is None or key < end)
        ),
        reverse=reverse,
    )
    bounds: Any = {"prefix": prefix, "start": start, "end": end, "reverse": reverse}
    assert [key for key, _ in state.range(**bounds)] == wanted
    commit(store)
    store._index.entries = None  # type: ignore[union-attr] # as after a restore
    assert [key for key, _ in store.committed_view().range(**bounds)] == wanted
    assert list(store.committed_view()) == list(state) == sorted(given_keys)


def test_many_keys_are_sorted_in_small_steps() -> None:
    """In any order of arrival, no step sorts more than some blocks; together they are in order."""
    numbers = [f"{n:08d}" for n in range(100_000)]
    shuffled = random.Random(1).sample(numbers, len(numbers))
    for came in (numbers, shuffled, numbers[::-1]):
        with patch.object(module, "sorted_bucket", wraps=module.sorted_bucket) as sorting_one:
            groups = [{key: f"value of {key}" for key in came[n::1024]} for n in range(1024)]
            entries: SortedEntries[str, str] = all_of(sorting(groups))
        largest = max(len(call.args[0]) for call in sorting_one.mock_calls)
        assert largest <= 6 * module.BLOCK_ENTRIES
        assert len(sorting_one.mock_calls) > 100
        found = entries_of(entries.within())
        assert found == [(key, f"value of {key}") for key in numbers]


@pytest.mark.parametrize(
    ("key_type", "bounds"),
    [
        (int, {"prefix": 1}),
        (int, {"start": "a"}),
        (str, {"end": b"a"}),
        (tuple[bytes, str], {"prefix": (b"a", "b", "c")}),
        (tuple[bytes, str], {"start": ("a",)}),
        (tuple[bytes, str], {"prefix": b"a"}),
    ],
)
def test_a_bound_of_another_type_is_refused(key_type: Any, bounds: Any) -> None:
    """By its value and the type that it is not; no bound at all is all keys."""
    state: MapState[Any, int] = MapState(key_type, int, ordered=True)
    with pytest.raises(RecordError, match=r"state\.range\(\): .* is no (prefix|bound) of a "):
        state.range(**bounds)
    assert list(state.range()) == []


def test_a_bound_that_no_key_can_be_is_refused() -> None:
    """KeyBounds are compared as bytes, and it has none; the largest key there can be is a bound."""
    state: MapState[tuple[str, int], int] = MapState(tuple[str, int], int, ordered=True)
    for bounds in ({"end": ("a", 2**63)}, {"prefix": ("\ud800",)}):
        with pytest.raises(RecordError, match="cannot be encoded"):
            state.range(**bounds)
    state["a", 2**63 - 1] = 1
    assert list(state.range(start=("a", 2**63 - 1), end=("b",))) == [(("a", 2**63 - 1), 1)]


def test_a_map_that_keeps_no_order_has_no_ranges() -> None:
    """It would sort all keys each time; done as the hint says, it does not."""
    with pytest.raises(UsageError, match="does not keep its keys in order") as refused:
        MapState(str, int).range()
    assert "ordered=True" in refused.value.hint
    state: MapState[str, int] = MapState(str, int, ordered=True)
    state.update(b=2, a=1)
    assert list(state.range(start="a", end="c", reverse=True)) == [("b", 2), ("a", 1)]

"""Tests of the order in which the records of several inputs are processed."""

import heapq
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app.record import RawRecord
from snapreplay.service.core.arrivals import Arrivals, Place

times = st.lists(st.integers(0, 6), max_size=8)


def of(topic, timestamps):
    return [RawRecord(topic, 0, offset, at, None, b"") for offset, at in enumerate(timestamps)]


def holding(wait_ms=0, **timestamps):
    arrivals = Arrivals(timestamps, wait_ms)
    for topic, found in timestamps.items():
        if found:
            arrivals.add(of(topic, found))
    return arrivals


def shown(records):
    return [(each.topic, each.timestamp) for each in records]


AT_END, BEHIND, UNKNOWN = Place(5, 5), Place(5, 6), Place(0, None)


def test_oldest_head_first_and_ties_to_the_first_input():
    """An input whose times fall back holds its own later records back, not the other input's."""
    taken = holding(a=[1, 5, 2], b=[1, 4, 6]).take(9, ())
    assert shown(taken) == [("a", 1), ("b", 1), ("b", 4), ("a", 5), ("a", 2), ("b", 6)]


def test_nothing_is_taken_before_an_input_that_is_behind_has_a_record():
    """Its next one may be the oldest of all; and behind its last record here, too."""
    arrivals = holding(a=[], b=[1, 4, 6])
    awaited = arrivals.awaited({"a": BEHIND, "b": AT_END}, 0.0)
    assert awaited == ["a"]
    assert arrivals.take(9, awaited) == ()
    arrivals.add(of("a", [2, 3]))
    assert shown(arrivals.take(9, awaited)) == [("b", 1), ("a", 2), ("a", 3)]
    assert arrivals.blocked_by(awaited) == ["a"]
    assert shown(arrivals.take(9, arrivals.awaited({"a": AT_END, "b": AT_END}, 0.0))) == [("b", 4), ("b", 6)]


@pytest.mark.parametrize(
    ("place", "is_awaited"), [(AT_END, False), (BEHIND, True), (UNKNOWN, True), (Place(7, 5), False)]
)
def test_an_input_is_waited_for_until_it_is_read_to_an_end_that_is_known(place, is_awaited):
    """Before the first fetch nothing is known."""
    assert bool(holding(a=[]).awaited({"a": place}, 0.0)) == is_awaited
    assert not holding(wait_ms=-1, a=[]).awaited({"a": place}, 0.0)


def test_a_quiet_input_is_waited_for_as_long_as_the_setting_says():
    """From when another one has a record; once the time is over, until it has one again."""
    arrivals, places = holding(wait_ms=500, a=[], b=[1]), {"a": AT_END, "b": AT_END}
    assert arrivals.take(9, arrivals.awaited(places, 10.0)) == ()
    assert arrivals.take(9, arrivals.awaited(places, 10.4)) == ()
    assert shown(arrivals.take(9, arrivals.awaited(places, 10.6))) == [("b", 1)]
    arrivals.add(of("b", [2]))
    assert shown(arrivals.take(9, arrivals.awaited(places, 10.7))) == [("b", 2)]
    arrivals.add(of("a", [3]))
    arrivals.add(of("b", [4]))
    assert shown(arrivals.take(9, arrivals.awaited(places, 20.0))) == [("a", 3)]
    assert arrivals.take(9, arrivals.awaited(places, 20.4)) == ()
    assert shown(arrivals.take(9, arrivals.awaited(places, 21.0))) == [("b", 4)]


fetches = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), max_size=30)
"""Each: the number of an input, how many of its records arrive, how many of all are taken at most."""


@given(st.lists(times, min_size=1, max_size=4), fetches)
def test_the_order_of_what_is_known_does_not_depend_on_what_is_fetched_first(inputs, fetched):
    """In any order of arrival and pieces of any size, the records of all inputs are taken as if they came together."""
    runs = {f"t{number}": of(f"t{number}", found) for number, found in enumerate(inputs)}
    arrivals, read = Arrivals(runs, 0), dict.fromkeys(runs, 0)
    taken: list[object] = []
    the_rest = [(number, 8, 99) for number in range(len(inputs))]
    for number, size, most in [*fetched, *the_rest]:
        topic = f"t{number % len(inputs)}"
        piece = runs[topic][read[topic] : read[topic] + size]
        read[topic] += len(piece)
        if piece:
            arrivals.add(piece)
        places = {name: Place(at, len(runs[name])) for name, at in read.items()}
        taken += arrivals.take(most, arrivals.awaited(places, 0.0))
    assert taken == list(heapq.merge(*runs.values(), key=attrgetter("timestamp")))
    assert not len(arrivals)

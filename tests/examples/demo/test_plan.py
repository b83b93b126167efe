"""Tests of when kills strike: by the seed alone, spread over the input, on both modes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.demo.plan import KILLS_MAX, plan

SEEDS = st.integers(0, 10**6)


def test_seed_decides() -> None:
    """The same seed gives the same moments, another one others."""
    assert plan(7, 5, 336_776) == plan(7, 5, 336_776)
    assert plan(7, 5, 336_776) != plan(8, 5, 336_776)


@given(SEEDS, st.integers(1, KILLS_MAX))
def test_places_rise_inside_the_input(seed: int, kills: int) -> None:
    """Each kill comes after the one before, after the first records and before the last."""
    places = [kill.records for kill in plan(seed, kills, 336_776)]
    assert places == sorted(places)
    assert len(places) == kills
    assert places[0] > 0
    assert places[-1] < 336_776


@given(SEEDS, st.integers(2, KILLS_MAX))
def test_both_modes_come_to_their_end(seed: int, kills: int) -> None:
    """One recovery by changes is left alone until it is LIVE, and the last one, by replay."""
    made = plan(seed, kills, 10_000)
    assert [kill.mode for kill in made] == ["changes"] * (kills - 1) + ["replay"]
    undisturbed = [a for a, b in pairwise(made) if b.moment != "recovering"]
    assert undisturbed, made


@given(SEEDS, st.integers(3, KILLS_MAX))
def test_every_moment_occurs(seed: int, kills: int) -> None:
    """From three kills on each kind strikes; never a recovery twice in a row, or first."""
    moments = [kill.moment for kill in plan(seed, kills, 10_000)]
    assert set(moments) == {"processing", "writing a snapshot", "recovering"}
    assert moments[0] != "recovering"
    assert ("recovering", "recovering") not in pairwise(moments)


@pytest.mark.parametrize("kills", [1, 2])
def test_few_kills_strike_the_processing(kills: int) -> None:
    """With one or two kills there is nothing but processing to strike."""
    assert {kill.moment for kill in plan(1, kills, 1000)} == {"processing"}


def test_one_kill_comes_back_by_changes() -> None:
    """The default mode is shown when there is only one."""
    assert [kill.mode for kill in plan(3, 1, 1000)] == ["changes"]

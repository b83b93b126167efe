"""A group of two or three: every interleaving of suspicions with claims, joins and assignments, within bounds."""

import pytest

from snapreplay.service.core import suspicion
from tests.explore.explore import Walk, explore
from tests.explore.taking_over import beginning, key_of, moves, problems

GROUPS = Walk(moves, problems, key_of)
STATES_MAX = 60_000


@pytest.mark.parametrize(
    ("count", "bounds"),
    [
        (2, {"kills": 1}),
        (2, {"suspicions": 2, "misses": 1}),
        (3, {"misses": 1}),
        (2, {"suspicions": 2, "misses": 1, "is_cut": True}),
        pytest.param(3, {"kills": 1}, marks=pytest.mark.whole),
        pytest.param(2, {"suspicions": 2, "kills": 1}, marks=pytest.mark.whole),
        pytest.param(2, {"suspicions": 3, "kills": 1, "is_cut": True}, marks=pytest.mark.whole),
    ],
    ids=str,
)
def test_after_every_suspicion_one_process_has_the_partition(count, bounds):
    """Right or wrong, and wherever a process dies: one owner, the last to claim, as the group says, too; no takeover
    without an end, and warm copies. Where a connection is cut, there is no takeover in return."""
    explored = explore(beginning(count, **bounds), STATES_MAX, GROUPS)
    assert explored.problem == "", "\n".join(explored.story)
    assert explored.is_whole


def ends_all(watch, event, now, assigned=suspicion._assigned):
    return assigned(watch, event._replace(fenced=frozenset(watch.under_way)), now)


def says_nothing(watch, *_):
    return watch, ()


def no_process_lives(*_):
    return {}


def says_the_first(watch, event, claimed=suspicion._claimed):
    takeover = watch.under_way.get(event.partition)
    return claimed(watch, event) if takeover is None or takeover.epoch is None else (watch, ())


@pytest.mark.whole
@pytest.mark.parametrize(
    ("where", "rule", "broken", "is_cut"),
    [
        (suspicion, "_assigned", ends_all, False),
        (suspicion, "_claimed", says_nothing, False),
        (suspicion, "_claimed", says_the_first, False),
        (suspicion, "_taken_at", no_process_lives, True),
    ],
    ids=[
        "an old assignment ends it",
        "no claim is announced",
        "only the first claim is announced",
        "silence alone counts",
    ],
)
def test_a_takeover_without_one_of_its_rules_is_found_out(monkeypatch, where, rule, broken, is_cut):
    """By the shortest history that shows it."""
    monkeypatch.setattr(where, rule, broken)
    assert explore(beginning(2, suspicions=2, misses=1, is_cut=is_cut), STATES_MAX, GROUPS).problem

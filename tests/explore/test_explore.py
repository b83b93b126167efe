"""Two owners, one partition: every interleaving within bounds. `python -m tests.explore` walks a million states."""

import pytest

from tests.explore.explore import explore
from tests.explore.world import Rules, beginning

BOUNDS = {"batches": 2, "snapshots_left": 1, "faults": 1, "crashes": 0, "fences": 3}
STATES_MAX = 60_000


def test_no_interleaving_of_two_owners_breaks_the_chain():
    """Lost answers, stale leaders, refused epochs: one chain, nothing twice, nothing lost, nothing needed trimmed."""
    explored = explore(beginning(**BOUNDS), STATES_MAX)
    assert explored.problem == "", "\n".join(explored.story)
    assert explored.is_whole


def test_a_kill_at_any_step_is_survived():
    """Of either owner, also while it recovers."""
    bounds = {**BOUNDS, "faults": 0, "crashes": 1}
    explored = explore(beginning(**bounds), STATES_MAX)
    assert explored.problem == "", "\n".join(explored.story)
    assert explored.is_whole


@pytest.mark.parametrize(
    ("broken", "steps_max"),
    [
        ({"fences": False}, 20),
        ({"claims": False}, 20),
        ({"waits_for_claim": False}, 20),
        ({"waits_for_pointer": False}, 12),
        ({"trims_too_far": True}, 13),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_protocol_without_one_of_its_rules_is_found_out(broken, steps_max):
    """By the shortest history: first what everybody does, last what goes wrong."""
    explored = explore(beginning(**BOUNDS, rules=Rules(**broken)), STATES_MAX)
    assert explored.problem
    assert 5 < len(explored.story) <= steps_max

"""Two owners, one partition: every interleaving within bounds. `python -m tests.explore` walks a million states."""

import pytest

from tests.explore.explore import explore
from tests.explore.world import Command, Rules, beginning

TWO = pytest.param(2, marks=pytest.mark.whole)
CRASHING = pytest.param({"faults": 0, "crashes": 1}, marks=pytest.mark.whole)
BOUNDS = {"batches": 2, "snapshots_left": 1, "faults": 1, "crashes": 0, "fences": 3}
STATES_MAX = 60_000


def walked(start, states_max=STATES_MAX):
    """Walk the worlds from there; nothing goes wrong in any."""
    explored = explore(start, states_max)
    assert explored.problem == "", "\n".join(explored.story)
    return explored


@pytest.mark.parametrize("batches", [1, TWO])
def test_no_interleaving_of_two_owners_breaks_the_chain(batches):
    """Lost answers, stale leaders, refused epochs: one chain, nothing twice, nothing lost, nothing needed trimmed."""
    assert walked(beginning(**{**BOUNDS, "batches": batches})).is_whole


@pytest.mark.parametrize("batches", [1, TWO])
def test_a_kill_at_any_step_is_survived(batches):
    """Of either owner, also while it recovers."""
    bounds = {**BOUNDS, "faults": 0, "crashes": 1, "batches": batches}
    assert walked(beginning(**bounds)).is_whole


@pytest.mark.whole
@pytest.mark.parametrize("schemas", [(1, 2), pytest.param((2, 2), marks=pytest.mark.whole)], ids=str)
@pytest.mark.parametrize("bounds", [{"faults": 1}, CRASHING], ids=str)
def test_a_state_is_upgraded_once(schemas, bounds):
    """Beside an owner whose code is older, which continues until then and is refused from then on; or as another one
    upgrades it, too. The state is that of one upgrade, in every snapshot and after every restore."""
    assert walked(beginning(schemas, **{**BOUNDS, "batches": 1, "snapshots_left": 0, **bounds})).is_whole


@pytest.mark.whole
@pytest.mark.parametrize("broken", [{"upgrades_once": False}, {"waits_for_decision": False}], ids=str)
def test_an_upgrade_without_one_of_its_rules_is_found_out(broken):
    """One that does not say which schema it made; one that is committed before its snapshot is there."""
    assert explore(beginning((2, 2), **{**BOUNDS, "batches": 1}, rules=Rules(**broken)), STATES_MAX).problem


@pytest.mark.parametrize("bounds", [{"faults": 1}, CRASHING, {"faults": 0, "losses": 1}], ids=str)
def test_an_internal_topic_is_added_once(bounds):
    """By the first owner whose code declares it, regardless of the other one: in one chain, and before it is LIVE."""
    start = beginning((1, 1), (1, 1), True, **{**BOUNDS, "batches": 1, "snapshots_left": 0, **bounds})
    assert walked(start).is_whole


@pytest.mark.whole
def test_an_internal_topic_added_without_a_fence_is_found_out():
    explored = explore(
        beginning((1, 1), (1, 1), True, **{**BOUNDS, "faults": 0}, rules=Rules(fences=False)), STATES_MAX
    )
    assert any("adds its internal topic" in step for step in explored.story), explored.story


COMMANDED = {**BOUNDS, "batches": 1, "snapshots_left": 0}
FENCES = [2, pytest.param(3, marks=pytest.mark.whole)]


@pytest.mark.parametrize("fences", FENCES)
@pytest.mark.parametrize("bounds", [{"faults": 1}, CRASHING], ids=str)
@pytest.mark.parametrize("corrects", [True, False], ids=["patch", "inputs"])
def test_a_command_beside_the_owners_decides_once(corrects, bounds, fences):
    """It corrects the state, or adds an input: behind the last batch, with any commits of the owners meanwhile and
    wherever it dies. Whose version has other inputs is refused, and continues when the log has them."""
    bounds = {**COMMANDED, **bounds, "fences": fences, "command": Command(corrects)}
    assert walked(beginning((1, 1), (1, 1) if corrects else (1, 2), **bounds)).is_whole


@pytest.mark.whole
@pytest.mark.parametrize("broken", [{"command_fences": False}, {"looks_again": False}], ids=str)
@pytest.mark.parametrize("corrects", [True, False], ids=["patch", "inputs"])
def test_a_command_without_one_of_its_rules_is_found_out(corrects, broken):
    """An owner that commits beside it; one that it has not looked at again."""
    bounds = {**COMMANDED, "faults": 0, "command": Command(corrects), "rules": Rules(**broken)}
    assert explore(beginning((1, 1), (1, 1) if corrects else (1, 2), **bounds), STATES_MAX).problem


LOSING = {**BOUNDS, "snapshots_left": 0, "faults": 0, "losses": 1}


@pytest.mark.whole
def test_a_log_that_loses_its_end_breaks_no_chain():
    """At any step of either owner: an owner with the state in memory writes it; one without continues with the log, or
    says what was lost."""
    assert walked(beginning(**LOSING)).is_whole


@pytest.mark.whole
@pytest.mark.parametrize("broken", [{"compares_offsets": False}, {"begins_chain": False}], ids=str)
def test_a_lost_end_is_found_out_without_a_rule(broken):
    """An owner that does not compare offsets, or keeps to the log instead of its memory."""
    explored = explore(beginning(**LOSING, rules=Rules(**broken)), STATES_MAX)
    assert explored.problem


COPYING = {**BOUNDS, "batches": 1, "snapshots_left": 0, "fences": 2, "copies": True}


LARGER = {"snapshots_left": 1, "batches": 2, "fences": 3}


@pytest.mark.parametrize(
    "bounds",
    [
        {"faults": 1},
        CRASHING,
        {"faults": 0, "losses": 1},
        pytest.param({**LARGER, "faults": 1}, marks=pytest.mark.whole),
        pytest.param({**LARGER, "faults": 0, "losses": 1, "snapshots_left": 0}, marks=pytest.mark.whole),
    ],
    ids=str,
)
@pytest.mark.parametrize("schemas", [(1, 1), pytest.param((1, 2), marks=pytest.mark.whole)], ids=str)
def test_a_takeover_from_a_warm_copy_breaks_no_chain(schemas, bounds):
    """Of any batch, also one that the log has lost, and while the other one is alive: LIVE with the state of the last
    increment, or restored in full, or it says what was lost."""
    walk = walked(beginning(schemas, **{**COPYING, **bounds}), STATES_MAX * 3 // 2)
    assert walk.is_whole or "batches" in bounds


@pytest.mark.whole
@pytest.mark.parametrize("broken", [{"compares_copies": False}, {"fences": False}], ids=str)
def test_a_takeover_without_one_of_its_rules_is_found_out(broken):
    """A copy of what the log has lost; an owner that is not fenced."""
    bounds = {**COPYING, "batches": 2, "fences": 3, "faults": 0, "losses": int("compares_copies" in broken)}
    explored = explore(beginning(**bounds, rules=Rules(**broken)), STATES_MAX)
    assert explored.problem
    assert any("cop" in step for step in explored.story) or "fences" in broken


@pytest.mark.whole
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

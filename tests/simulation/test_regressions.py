"""What the simulator found in the product, each as the history that found it, without the rest of the seed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from tests.simulation import scenario
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Link
from tests.simulation.run import run_world
from tests.simulation.scenario import Event, Scenario
from tests.simulation.world import World

QUIET = replace(
    scenario.draw(random.Random(0)),
    partitions=1,
    processes=1,
    inputs=1,
    records=30,
    changes=True,
    road="changes",
    dead_letter=False,
    every_records=3,
    kept=3,
    records_max=3,
    fat=False,
    poison=0.0,
    slow_markers=False,
    chaos_seconds=4.0,
    events=(),
    epilogue="restart",
    slow_steps=False,
)
"""A history without faults and events; each test adds its own."""


class Script:
    """Instead of drawn faults: `plan` maps a site to the fault of its nth request, counted from 0 over all."""

    def __init__(self, world: World, plan: dict[str, dict[int, str]]) -> None:
        self.seen: dict[str, int] = dict.fromkeys(plan, 0)
        self.played: list[str] = []
        self._plan = plan
        faults = world.network.faults
        faults.draw = self.draw if plan else faults.draw  # type: ignore[method-assign]  # the script replaces the dice
        self._active = lambda: faults.active

    def draw(self, site: str) -> str | None:
        if site not in self._plan or not self._active():
            return None
        at, self.seen[site] = self.seen[site], self.seen[site] + 1
        kind = self._plan[site].get(at)
        if kind is not None:
            self.played.append(f"{site}.{kind}")
        return kind


def play(drawn: Scenario, plan: dict[str, dict[int, str]]) -> tuple[str | None, Script, World]:
    """The problem, if any."""
    loop, rng = VirtualLoop(), random.Random(1)
    world = World(loop, drawn, rng)
    script = Script(world, plan)
    return run_world(loop, world, rng), script, world


def test_a_history_without_faults() -> None:
    """The scripted histories begin from one in which nothing happens, and nothing breaks."""
    problem, _, world = play(QUIET, {})
    assert problem is None
    assert world.network.faults.counts["road changes"] > 0


@pytest.mark.parametrize("nth", range(2, 14))
def test_a_pointer_in_doubt_is_not_a_batch_in_doubt(nth: int) -> None:
    """An empty increment whose commit is not answered leaves nothing to merge ("no sealed batch to merge")."""
    problem, script, _ = play(QUIET, {"end": {nth: "answer_lost"}})
    assert script.played
    assert problem is None


@pytest.mark.parametrize("nth", range(6))
def test_a_connection_that_breaks_into_a_stale_leader_is_no_foreign_log(nth: int) -> None:
    """Between the end beyond the claim and the claim itself the reader may come to a stale leader: ask again."""
    stale = (Event(0.001, "stale broker", 2.0),)
    problem, script, _ = play(replace(QUIET, events=stale), {"bounds": {nth: "renew"}})
    assert script.played
    assert problem is None


@pytest.mark.parametrize("nth", [2, 3, 4, 5])
def test_a_stalled_recovery_takes_its_successors_work_for_no_damage(nth: int) -> None:
    """What a newer owner wrote and trimmed meanwhile (LogCut, NoRoad) is a newer owner, not a damaged log."""
    drawn = replace(QUIET, processes=2, partitions=2, kept=2)
    problem, script, _ = play(drawn, {"bounds": {nth: "stall_after"}})
    assert script.played
    assert problem is None


def test_links_of_the_dead_are_silent() -> None:
    """A crashed process sends nothing more, whatever its tasks still try."""
    _, _, world = play(QUIET, {})
    dead = world.everybody[-1]
    dead.dead = True
    with pytest.raises(asyncio.CancelledError):
        Link(world.network, dead).draw("end")

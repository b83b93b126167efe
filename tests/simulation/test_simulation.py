"""Thousands of histories, each of one seed: with any faults, nothing is lost and nothing is there twice."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from tests.simulation.run import SEEDS_FOR_ALL, Tally, kept, run_seed
from tests.simulation.world import World

BLOCK = 25
BLOCKS = [range(start, start + BLOCK) for start in range(0, 150, BLOCK)]
"""`make sim` has as many more as one wants."""


@pytest.mark.parametrize(
    "block",
    [BLOCKS[0], *(pytest.param(each, marks=pytest.mark.whole) for each in BLOCKS[1:])],
    ids=lambda block: f"{block.start}-{block.stop - 1}",
)
def test_every_promise_is_kept(block: range) -> None:
    """No history of these seeds breaks a promise: see `oracle`, `watch` and `world` for what they are."""
    kept(block)


@pytest.mark.parametrize("hash_seed", [1, pytest.param(2, marks=pytest.mark.whole)])
def test_a_seed_is_a_history_in_every_process(hash_seed: int) -> None:
    """The same events at the same times; the order of sets and dicts, which differs from process to process, decides
    nothing."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", "5"]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    printed = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    here = run_seed(5, trace=True)
    assert printed.stdout == f"seed 5: every promise was kept\ntrace {here.trace_digest}\n"
    assert len(here.lines) > 20
    assert run_seed(6, trace=True).trace_digest != here.trace_digest


def test_a_run_that_fails_says_why() -> None:
    """Each broken promise with the command that plays it again; what was never met, if there were enough seeds."""
    few = Tally(SEEDS_FOR_ALL - 1, problems={7: "lost"}, wanted=("crash",))
    (broken,) = few.failures(decisions=True)
    assert broken.endswith("python -m tests.simulation --seed 7 --decisions --trace")
    (missed,) = Tally(SEEDS_FOR_ALL, wanted=("crash", "stall"), counts=Counter(stall=1)).failures()
    assert "2,000 histories, enough to meet everything: crash." in missed


async def _crash_and_end(world: World, end: Callable[[World], Awaitable[None]]) -> None:
    world.loop.call_later(0.001, world.processes[0].crash)
    await end(world)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_crash_that_was_under_way_at_the_end_is_no_problem(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process dies while it is stopped for good: it is not started again, and nothing of it is left over."""
    end = World.end
    monkeypatch.setattr(World, "end", lambda world: _crash_and_end(world, end))
    assert run_seed(seed).problem is None


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 12), marks=pytest.mark.whole)], ids=str)
def test_what_an_app_sends_to_itself_is_handled_once(seeds: range) -> None:
    """In the partition of its new key, through kills and moves; each batch has sent what its records lead
    to."""
    assert kept(seeds, rekeys=True).counts["handled what was sent again"] > 50

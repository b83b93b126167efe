"""Histories whose state is upgraded and corrected: once, at the batch that says so, with any faults meanwhile."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest

from tests.simulation.faults import MENU
from tests.simulation.network import Link, Owner
from tests.simulation.process import Process
from tests.simulation.run import kept
from tests.simulation.scenario import Event
from tests.simulation.test_regressions import QUIET, Script

AT = 0.75
CLIENTS = ("patch", "inputs")
DECIDING = replace(QUIET, epilogue="none", records=20, chaos_seconds=2.0)
REWIRED = replace(DECIDING, inputs=2, inputs_at_first=2)
TELLING = (0, 1, 3, 5, 15, 23)
"""Seeds that catch the mutants of decisions that random faults lead to; 1, 5, 15 and 23 are each the only one for one
of them."""


@pytest.mark.parametrize(
    ("seeds", "losses"),
    [
        (TELLING, False),
        pytest.param(sorted({*range(25)} - {*TELLING}), False, marks=pytest.mark.whole),
        pytest.param(range(25), True, marks=pytest.mark.whole),
    ],
    ids=["", "more", "losses"],
)
def test_a_decision_is_made_once(seeds: Sequence[int], losses: bool) -> None:
    """By owners of newer and older versions and by clients, among all other faults and events."""
    kept(seeds, losses=losses, decisions=True)


SWEPT = {"connect": 1, "admin": 3, "fence": 1, "fill": 2, "bounds": 3, "read": 1, "append": 2, "end": 2}
"""Site → how many requests a decision makes there, or as many of them as differ."""


MADE = {"upgrade all": "state upgraded", "patch once": "state corrected", "inputs once": "input retired"}
REPEATED = ("inputs once",)
"""By the same code as the other kinds; the blocks above have it among random faults."""


@pytest.mark.parametrize(
    ("kind", "site"),
    [
        pytest.param(kind, site, marks=[pytest.mark.whole] * (kind in REPEATED))
        for kind in MADE
        for site in SWEPT
        if (kind, site) != ("inputs once", "append")
    ],
)
def test_a_decision_survives_each_fault_of_each_request(kind: str, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that makes it is killed before and after the request, pauses, gets no answer, is fenced: the
    decision is made once, or by the next one, or not at all."""
    plan: dict[int, str] = {}
    history, made = REWIRED if kind.startswith("inputs") else DECIDING, MADE[kind]
    event = Event(AT, kind, 0.01)
    monkeypatch.setattr(Link, "draw", lambda link, at: drawn(plan, link.owner) if at == site else None)
    met: Counter[str] = Counter()
    for fault in MENU[site]:
        for nth in range(SWEPT[site]):
            plan.clear()
            plan[nth] = fault
            script = Script({}, replace(history, events=(event,)))
            problem = script.run()
            assert problem is None, f"{fault} at {nth}: {problem}"
            met.update({fault: not plan, made: script.world.network.faults.counts[made]})
    assert not set(MENU[site]) - set(+met), met
    assert met[made]


def drawn(plan: dict[int, str], owner: Owner) -> str | None:
    """Return the fault of the next request of whoever decides: the newer version, or the client."""
    if not isinstance(owner, Process) or (owner.app.schema_version == 1 and not owner.name.startswith(CLIENTS)):
        return None
    now, later = plan.pop(0, None), {nth - 1: fault for nth, fault in plan.items()}
    plan.clear()
    plan.update(later)
    return now


def test_older_code_is_refused_by_name() -> None:
    """The version of before is started in the owner's place once its state is upgraded; the state is unharmed."""
    script = Script({"end": {}}, replace(DECIDING, chaos_seconds=4.0))
    world = script.world

    def exchange(schema: int) -> None:
        world.decisions.schema = 2
        (owner,) = world.processes
        owner.crash()
        world.start(owner.instance_id, schema=schema)

    world.loop.call_later(1.0, exchange, 2)
    world.loop.call_later(2.5, exchange, 1)
    assert script.run() is None
    counts = world.network.faults.counts
    assert (counts["state upgraded"], counts["older code refused"]) == (1, 1)


@pytest.mark.parametrize("mode", ["changes", "replay"])
@pytest.mark.parametrize("start", ["earliest", "resume"])
def test_an_input_is_retired_and_taken_in_again(start: str, mode: Literal["changes", "replay"]) -> None:
    """Before anybody takes a snapshot: a recovery by replay would have to read it twice, so it goes by the changes."""
    events = tuple(Event(at, "inputs once", 0.0) for at in (6.0, 6.3))
    drawn = replace(
        REWIRED, mode=mode, records=60, every_records=0, chaos_seconds=8.0, epilogue="restart", events=events
    )
    script = Script({"end": {}}, drawn)
    script.world.rewiring.starts = (start,)
    assert script.run() is None
    counts = script.world.network.faults.counts
    retired = counts["input retired"] + counts["input retired, records left"]
    assert (counts["inputs: made"], retired, counts[f"input added: {start}"]) == (2, 1, 1)
    assert counts["input taken in again behind records"] == (start == "resume")

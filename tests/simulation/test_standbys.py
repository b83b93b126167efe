"""Histories of processes that hold warm copies of each other's partitions, and suspect each other, rightly or not."""

from dataclasses import replace
from functools import partial

import pytest

from tests.simulation.events import last_increment
from tests.simulation.fleet import Fleet
from tests.simulation.group import SESSION_SECONDS
from tests.simulation.run import kept
from tests.simulation.scenario import Event
from tests.simulation.test_regressions import QUIET, Script

STANDING_BY = replace(QUIET, processes=2, replicas=1, epilogue="none", dead_letter=True)


@pytest.mark.parametrize(
    ("seeds", "others"),
    [
        (range(6), False),
        pytest.param(range(6, 25), False, marks=pytest.mark.whole),
        pytest.param(range(25), True, marks=pytest.mark.whole),
    ],
    ids=["", "more", "losses, decisions"],
)
def test_a_takeover_costs_no_record(seeds: range, others: bool) -> None:
    """See `copying`, `suspecting` and `fleet` for what must hold beside what holds in every history."""
    kept(seeds, losses=others, decisions=others, standbys=True)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("crash", {"partition taken over": 1, "takeover confirmed": 1}),
        ("suspect living", {"partition taken over": 1, "takeover confirmed": 1, "false alarm": 1}),
        ("stop process", {"live from a copy": 1}),
    ],
)
def test_the_copy_continues(kind: str, found: dict[str, int]) -> None:
    """When its owner dies for good, is taken for dead, or gives the partition away; the copy is the committed state."""
    script = Script({"end": {}}, STANDING_BY)
    world = script.world
    assert isinstance(world.group, Fleet)

    def happen() -> None:
        owner = world.group.owner(0)
        other = next(each for each in world.processes if each is not owner)
        assert owner is not None
        match kind:
            case "crash":
                world.processes.remove(owner)
                owner.crash()
                world.suspicions.suspect(other, owner)
            case "suspect living":
                world.suspicions.suspect(other, owner)
            case _:
                world.processes.remove(owner)
                owner.spawn(owner.stop(last_snapshot=False))
        script.when(lambda: counts["live from a copy"], script.resume)

    def is_copied() -> bool:
        last, copies = last_increment(world, 0), [copy for each in world.processes for copy in each.board.standbys()]
        return last is not None and any(copy.state == "warm" and copy.batch == last.batch for copy in copies)

    counts = world.network.faults.counts
    world.loop.call_later(2.0, script.when_processed, partial(script.when, is_copied, happen))
    assert script.run() is None
    assert {name: counts[name] for name in found} == found
    assert counts["live from a copy"]


@pytest.mark.parametrize("replicas", [0, 1])
def test_the_partitions_of_a_lost_process_go_to_the_others_evenly(replicas: int) -> None:
    """With warm copies before the session timeout, without any after it."""
    script = Script({"end": {}}, replace(STANDING_BY, processes=3, partitions=12, records=8, replicas=replicas))
    world, lost = script.world, {"at": 0.0}
    loads: list[list[int]] = []

    def owned() -> list[int]:
        held = [each.supervisor.holding.owned for each in world.processes if each.supervisor is not None]
        return sorted(map(len, held))

    def copied() -> int:
        return sum(copy.state == "warm" for each in world.processes for copy in each.board.standbys())

    def lose() -> None:
        assert owned() == [4] * 3
        victim = world.processes.pop()
        victim.crash()
        lost["at"] = world.loop.time()
        if replicas:
            for each in world.processes:
                world.suspicions.suspect(each, victim)
        script.when(lambda: owned() == [6] * 2 and len(live()) == 12, back)

    def live() -> list[int]:
        return [number for number in range(12) if world.store_of(number) is not None]

    def back() -> None:
        loads.append(owned())
        lost["seconds"] = world.loop.time() - lost["at"]

    def is_even() -> bool:
        return owned() == [4, 4, 4] and copied() == 12 * replicas

    world.loop.call_later(0.5, script.when, is_even, lose)
    assert script.run() is None
    assert loads == [[6] * 2]
    assert (lost["seconds"] < SESSION_SECONDS) == bool(replicas)


def test_a_wrong_suspicion_is_not_acted_on_again_at_once() -> None:
    """However often it is heard: one takeover, and then the pause."""
    events = tuple(Event(2.0 + at / 10, "suspect living", 0.0) for at in range(15))
    script = Script({"end": {}}, replace(STANDING_BY, events=events))
    assert script.run() is None
    counts = script.world.network.faults.counts
    assert counts["suspected: refused, living"] == 15
    assert 1 <= counts["partition taken over"] <= 3

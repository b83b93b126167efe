"""A schedule is carried out lane by lane; a fault that fails is reported, and the run continues."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos import lanes
from tests.chaos.lanes import PERFORMERS
from tests.chaos.schedule import Fault, Kind
from tests.chaos.timeline import Timeline


def fault(number: int, kind: Kind, begin_s: float) -> Fault:
    return Fault(number, kind, begin_s, 0.0, 0, snapshot=False)


@pytest.fixture
def world() -> Any:
    """Make only what a lane itself touches."""
    return SimpleNamespace(timeline=Timeline())


def test_every_kind_has_its_executor():
    """What can be drawn can be done."""
    assert set(PERFORMERS) == set(Kind)


def test_a_fault_that_cannot_be_carried_out_is_reported_and_its_lane_continues(world, monkeypatch):
    """A machine that is too slow for a fault says nothing about the product."""

    @contextmanager
    def well(world, fault, hit):
        hit("done")
        yield

    @contextmanager
    def badly(world, fault, hit):
        raise OSError("no such broker")
        yield

    monkeypatch.setitem(PERFORMERS, Kind.KILL_BROKER, well)
    monkeypatch.setitem(PERFORMERS, Kind.KILL_LEADER, badly)
    monkeypatch.setitem(PERFORMERS, Kind.CUT, well)
    planned = [
        fault(0, Kind.KILL_BROKER, 0.0),
        fault(1, Kind.KILL_LEADER, 0.0),
        fault(2, Kind.KILL_BROKER, 0.0),
        fault(3, Kind.CUT, 0.0),
    ]
    lanes.carry_out(world, planned, seconds=60)
    healed = {one.fault.number: one.healed_s is not None for one in world.timeline.injected}
    assert healed == {0: True, 1: False, 2: True, 3: True}
    errors = {one.fault.number: one.error.splitlines()[0] for one in world.timeline.injected if one.error}
    assert errors == {1: "OSError: no such broker"}
    assert not world.timeline.problems

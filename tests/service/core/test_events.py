"""What can happen in a recovery."""

import dataclasses
import typing

import pytest

from snapreplay.service.core import events


def test_every_event_is_a_value():
    """Frozen and compared by content: the same course of events gives the same recovery."""
    for kind in typing.get_args(events.Event):
        assert dataclasses.is_dataclass(kind)
        assert kind.__doc__
        assert kind.__hash__, "frozen: equal ones have equal hashes"
    assert events.FenceDone() == events.FenceDone()
    with pytest.raises(dataclasses.FrozenInstanceError):
        events.ClaimHidden(1, 2, 3).waited_ms = 0  # type: ignore[misc]


def test_no_event_is_left_out_of_the_union():
    """One outside of it would never be matched, and mypy could not say so."""
    made = {each for each in vars(events).values() if dataclasses.is_dataclass(each)}
    own = {each for each in made if each.__module__ == events.__name__}
    assert own == set(typing.get_args(events.Event))

"""Tests of how far inputs were read, and by what that is shown."""

from types import SimpleNamespace
from typing import Any

from snapreplay.app.ranges import Anchor, PositionAnchor
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.read_positions import (
    ReadPosition,
    committed_positions,
    positions_after,
)
from tests.support.entries import increment

RECORD, BELOW, NOW = Anchor(4, 1, 2), PositionAnchor(3, 9), PositionAnchor(5, 8)


def chain(**changed: Any) -> Chain:
    last = increment(
        7,
        positions={"a": 5, "b": 0},
        anchors={"a": RECORD},
        position_anchors={"a": BELOW},
    )
    return Chain(last.origin, 1, last, 7, 3, **changed)


def test_committed_positions_stand_on_what_the_last_increment_or_the_recovery_found():
    """The recovery saw it later."""
    untouched = ReadPosition(0, None, None)
    assert committed_positions(chain()) == {"a": ReadPosition(5, RECORD, BELOW), "b": untouched}
    found = committed_positions(chain(position_anchors={"a": NOW}))
    assert found == {"a": ReadPosition(5, RECORD, NOW), "b": untouched}
    assert found["a"].is_behind_record
    assert not untouched.is_behind_record


def test_of_a_batch_only_the_inputs_that_it_moves_are_compared():
    """A range of markers keeps the record before them."""
    applied: Any = SimpleNamespace(positions={"a": 8, "b": 0}, anchors={})
    moved = positions_after(chain(), applied, {"a": NOW})
    assert moved == {"a": ReadPosition(8, RECORD, NOW)}
    assert not moved["a"].is_behind_record

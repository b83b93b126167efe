"""The position of each input, and what shows that its log still holds all of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from snapreplay.app.batch import Applied
from snapreplay.app.ranges import Anchor, PositionAnchor
from snapreplay.service.core.chain import Chain
from snapreplay.snapshots.format.records import Increment


class ReadPosition(NamedTuple):
    """The position in one input, with what lay below it.

    Attributes:
        position: the next offset.
        record: the last record before it; None when there was none.
        below: what the log held directly below it; None when that is not known.
    """

    position: int
    record: Anchor | None
    below: PositionAnchor | None

    @property
    def is_behind_record(self) -> bool:
        """Whether the last record is what lies directly below the position."""
        return self.record is not None and self.record.offset == self.position - 1


def read_positions(
    increment: Increment, anchors: Mapping[str, PositionAnchor] | None = None
) -> dict[str, ReadPosition]:
    """Return the position in each input after this increment. `anchors`: instead of the increment's own."""
    known = increment.position_anchors if anchors is None else anchors
    return {
        topic: ReadPosition(position, increment.anchors.get(topic), known.get(topic))
        for topic, position in increment.positions.items()
    }


def committed_positions(chain: Chain) -> dict[str, ReadPosition]:
    """Return the committed position in each input."""
    return read_positions(chain.last, chain.expected_anchors)


def positions_after(
    chain: Chain, applied: Applied, below: Mapping[str, PositionAnchor]
) -> dict[str, ReadPosition]:
    """Return the positions that are committed next, in the inputs that move.

    Args:
        below: what lies below these positions.
    """
    committed = chain.last
    return {
        topic: ReadPosition(
            position, applied.anchors.get(topic, committed.anchors.get(topic)), below.get(topic)
        )
        for topic, position in applied.positions.items()
        if position != committed.positions.get(topic)
    }

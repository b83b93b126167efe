"""In which order records of several co-partitioned inputs are applied. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import attrgetter

from snapreplay.app.record import InputRecord

_timestamp = attrgetter("timestamp")


def interleave(inputs: Sequence[Sequence[InputRecord]]) -> Sequence[InputRecord]:
    """Merge what was fetched together: always the input whose next record is oldest; on a tie, the
    first one.

    Each input keeps its own order, also where its timestamps fall back. An input of which nothing
    was fetched is not waited for: the order depends on what had arrived, which is why increments
    record it (as ranges, in the order applied) and replay follows the record, not this function.
    One input costs nothing.
    """
    filled = [records for records in inputs if records]
    if len(filled) <= 1:
        return filled[0] if filled else ()
    return list(heapq.merge(*filled, key=_timestamp))


def by_input(runs: Sequence[Sequence[InputRecord]]) -> list[Sequence[InputRecord]]:
    """Each input's records in one run: what was fetched later of an input goes behind what was fetched first."""
    inputs: dict[str, list[InputRecord]] = {}
    for run in runs:
        inputs.setdefault(run[0].topic, []).extend(run)
    return list(inputs.values())

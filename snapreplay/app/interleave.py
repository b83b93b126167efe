"""The order in which records of several co-partitioned inputs are applied. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import attrgetter

from snapreplay.app.record import InputRecord

_timestamp = attrgetter("timestamp")


def interleave(inputs: Sequence[Sequence[InputRecord]]) -> Sequence[InputRecord]:
    """Merge what was fetched together: the oldest next record comes first; on a tie, the first input's.

    Each input keeps its own order, even where its timestamps fall back. It does not wait for an input
    without fetched records, so the order depends on what had arrived. Therefore increments record the
    order (as ranges), and a replay follows them, not this function.
    """
    filled = [records for records in inputs if records]
    if len(filled) <= 1:
        return filled[0] if filled else ()
    return list(heapq.merge(*filled, key=_timestamp))


def by_input(runs: Sequence[Sequence[InputRecord]]) -> list[Sequence[InputRecord]]:
    """Join the runs of each input, in the order in which they were fetched."""
    inputs: dict[str, list[InputRecord]] = {}
    for run in runs:
        inputs.setdefault(run[0].topic, []).extend(run)
    return list(inputs.values())

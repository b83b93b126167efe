"""Says how long it takes until all partitions are live, by the pace of the restores that have ended. Pure.

The prediction of a restore leaves out that it waits for others. Where a process restores many, waiting is most of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from snapreplay.api.fleet_views import Held
from snapreplay.service.control.status import Recovery
from snapreplay.service.core.phase import ON_THE_WAY, Phase

ENDED_MIN, ENDED_MAX = 3, 10
"""Restores of a process whose pace counts: the last ones. The first ones run beside the fences and claims of all."""


def remaining_seconds(partitions: Iterable[Held]) -> float | None:
    """Return the seconds of the process that takes the longest; None: all are live, or one's pace is not known."""
    of_process: dict[str, list[Held]] = {}
    for each in partitions:
        of_process.setdefault(each.process.process_id if each.process else "", []).append(each)
    found = [_of_process(each) for each in of_process.values()]
    wait = [each for each in found if each != 0.0]
    return None if not wait or None in wait else max(each or 0.0 for each in wait)


def _of_process(partitions: Sequence[Held]) -> float | None:
    waiting = [each for each in partitions if each.phase_now in ON_THE_WAY]
    if not waiting:
        return 0.0
    begun = [each.started_at for each in _restores(waiting) if each.started_at]
    live = _restores(each for each in partitions if each.phase_now == Phase.LIVE)
    # An earlier restore says nothing of how these get on. Times are compared within one process, by its clock.
    first = min(begun, default=None)
    ended = sorted(each.finished_at for each in live if each.finished_at and first and each.finished_at >= first)
    ended = ended[-ENDED_MAX:]
    if len(ended) < ENDED_MIN or ended[0] == ended[-1]:
        return None
    return len(waiting) * (ended[-1] - ended[0]).total_seconds() / (len(ended) - 1)


def _restores(partitions: Iterable[Held]) -> list[Recovery]:
    return [each.status.restore for each in partitions if each.status and each.status.restore]

"""Whether a recovery would succeed now: the planner asked in advance. Pure. A live partition does not notice that what
it would need after a crash is being deleted. The same judgement decides whether a state in memory may be dropped."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from snapreplay.errors import StopError
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.plan import FromGenesis, LogStarts, Start, plan_start

NEAR_SHARE = 0.25  # of the offsets between the log's start and our position


class Seen(Struct, frozen=True):
    """The findings of one look at the log up to `last`.

    Attributes:
        pointed: input positions of the snapshots it points to, by id, as far as readable.
        by_replay: only a replay can bring a snapshot forward.
        unusable: snapshots whose manifests are not where the pointers say, by id; why.
    """

    last: Increment
    last_offset: int
    starts: LogStarts
    pointed: Mapping[str, Mapping[str, int]]
    by_replay: bool
    unusable: Mapping[str, str] = field(default_factory=dict)


class NoStart(StopError):
    """The input no longer has the records for a replay from the genesis."""


class Recoverability(Struct, frozen=True):
    """The outlook of a recovery. `missing`: why none is possible. `snapshot_now`: why a snapshot is wanted at once;
    `even_unchanged`: also when nothing was applied since."""

    missing: str | None
    snapshot_now: str | None
    even_unchanged: bool = False


def outlook(seen: Seen) -> Recoverability:
    """Ask the planner that a recovery asks. Same input, same output."""
    ahead = _why_next_is_missing(seen)
    if ahead is not None:
        return Recoverability(ahead, None)
    try:
        start = start_of(seen)
    except StopError as error:
        return Recoverability(error.message, error.message, even_unchanged=True)
    return _with_a_way(seen, None if isinstance(start, FromGenesis) else start.pointer)


def start_of(seen: Seen) -> Start:
    """Say where a recovery would start. Raises StopError: nothing leads to the last increment."""
    unusable = dict(seen.unusable)
    while True:
        start = plan_start(seen.last, seen.last_offset, seen.starts, unusable)
        if isinstance(start, FromGenesis):
            why = _why_no_replay(seen, start.genesis.start_offsets)
            if why is not None:
                raise NoStart(why)
            return start
        why = _why_no_replay(seen, seen.pointed.get(start.pointer.snapshot_id))
        if why is None:
            return start
        unusable[start.pointer.snapshot_id] = why


def _with_a_way(seen: Seen, first: Pointer | None) -> Recoverability:
    """Say that it is recoverable; a snapshot helps when the newest one is lost, or the oldest one soon will be."""
    newest = next(iter(seen.last.pointers), None)
    if newest is not None and newest != first:
        return Recoverability(None, f"the newest snapshot, {newest.snapshot_id}, can no longer be used", True)
    return Recoverability(None, _near(seen) if seen.by_replay else None)


def _why_next_is_missing(seen: Seen) -> str | None:
    for topic, position in sorted(seen.last.positions.items()):
        start = seen.starts.inputs.get(topic, 0)
        if start > position:
            return f"input {topic} begins at offset {start}, but the next record to process is at {position}"
    return None


def _why_no_replay(seen: Seen, positions: Mapping[str, int] | None) -> str | None:
    """Say why the input no longer brings the state at `positions` forward; None when it does, or need not."""
    if not seen.by_replay:
        return None
    if positions is None:
        return "its position in the input could not be read from its increment"
    for topic, first in sorted(positions.items()):
        if topic not in seen.last.positions:
            return f"input {topic} was retired since, and a replay may need it"
        start = seen.starts.inputs.get(topic, 0)
        if first < start and first < seen.last.positions[topic]:
            return f"input {topic} begins at offset {start}, but a replay needs it from {first} on"
    return None


def _near(seen: Seen) -> str | None:
    """Say that deletion comes close to the oldest kept snapshot, if it does. A log that begins at 0 was never cut."""
    for pointer in seen.last.pointers[-1:]:
        positions = seen.pointed.get(pointer.snapshot_id, {})
        for topic, first in sorted(positions.items()):
            start, position = seen.starts.inputs.get(topic, 0), seen.last.positions.get(topic, first)
            if start > 0 and first - start < NEAR_SHARE * (position - start):
                return f"input {topic} begins at offset {start}, and the oldest kept snapshot needs it from {first} on"
    return None

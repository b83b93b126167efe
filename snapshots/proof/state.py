"""The state after a committed batch: a snapshot before it and the changes since, proved by the digest. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from snapreplay.errors import DamagedError, StopError
from snapreplay.snapshots.format.records import Pointer
from snapreplay.snapshots.log.batches import Batches
from snapreplay.snapshots.log.by_changes import ChangesLost, apply_changes
from snapreplay.snapshots.plan import is_decided
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.entries import PlainEntries, is_there, load, manifest_of
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.state.steps import all_of

_TAIL_RECORDS = 64
"""How far from the end the last increment is looked for first; eight times as far each time it is not there."""


class StateUnreachable(StopError):
    """A refusal: what the logs hold does not lead to the state that was asked for.

    Safe: The logs were only read, and the app goes on.
    """


class At(msgspec.Struct, frozen=True):
    """The batch after which a state is asked for: the last one before the first that is out of bounds. None bounds
    nothing.

    Attributes:
        batch, written_at_ms: the last one to count.
        offset: of the increments topic; only what lies below it counts.
        from_batch: the first one to count, where single batches are asked for.
    """

    batch: int | None = None
    offset: int | None = None
    written_at_ms: int | None = None
    from_batch: int | None = None

    @property
    def is_latest(self) -> bool:
        return self == At()

    def admits(self, found: Found) -> bool:
        offset, increment = found
        return (
            (self.batch is None or increment.batch <= self.batch)
            and (self.offset is None or offset < self.offset)
            and (self.written_at_ms is None or increment.written_at_ms <= self.written_at_ms)
        )


class StateAfter(NamedTuple):
    """The state of a partition after a batch."""

    after: Found
    entries: PlainEntries


def last_batch(moment: Moment, logs: Logs, at: At) -> Found | None:
    """Return the increment of the batch that `at` means; None when there is none.

    Raises:
        DamagedError: the increment that could be the one cannot be read.
    """
    if not at.is_latest:
        return _last(logs, moment.log_start, moment.log_end, at)
    width = _TAIL_RECORDS
    while True:
        start = max(moment.log_start, moment.log_end - width)
        found = _last(logs, start, moment.log_end, at)
        if found is not None or start == moment.log_start:
            return found
        width *= 8


def state_at(moment: Moment, logs: Logs, at: At) -> StateAfter | None:
    """Return the state; None when no batch is within the bounds.

    Raises:
        StateUnreachable: no snapshot leads there, or nothing that was recorded proves the state.
        DamagedError: what is on the way is not what was written, or the state's digest is another one.
    """
    found = last_batch(moment, logs, at)
    if found is None:
        return None
    damage: DamagedError | None = None
    last = found if at.is_latest else last_batch(moment, logs, At()) or found
    for pointer in bases(moment, found, last):
        try:
            return StateAfter(found, _brought_forward(moment, logs, found, pointer))
        except DamagedError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    raise StateUnreachable(
        f"partition {moment.partition}: no snapshot that leads to batch {found.increment.batch} is left, and the"
        f" increments begin at offset {moment.log_start}",
        hint="ask for a later batch: only what the snapshots kept by `retention.snapshots_kept` need is still there",
    )


def _last(logs: Logs, start_offset: int, end_offset: int, at: At) -> Found | None:
    """Find the last increment; one that cannot be read is passed over, unless it may be the last one."""
    last: Found | None = None
    for step in Batches(logs.seals).of(logs.increments(start_offset, end_offset)):
        found = Found(step.offset, step.increment)
        if not at.admits(found):
            for each in step.unread:
                raise each.error
            break
        last = found
        if found.increment.batch == at.batch:
            break
    return last


def bases(moment: Moment, found: Found, last: Found) -> Iterator[Pointer | None]:
    """Yield snapshots to begin with, the newest first; None for the genesis.

    A snapshot is pointed to by later increments than that of its batch, so those of the `last` one count, too.
    """
    pointers = {*found.increment.pointers, *last.increment.pointers}
    for pointer in sorted(pointers, key=lambda p: p.increment_offset, reverse=True):
        if pointer.increment_offset <= found.offset and is_there(pointer, moment):
            yield pointer
    if moment.log_start == 0 and not is_decided(found.increment):
        yield None


def _brought_forward(moment: Moment, logs: Logs, found: Found, pointer: Pointer | None) -> PlainEntries:
    """Bring the state forward and hash each entry once: at the end, or in the snapshot if no digest was recorded."""
    entries, since, recorded = PlainEntries(), moment.log_start, found.increment.digest
    if pointer is not None:
        load(logs, manifest_of(logs, pointer), entries, verify_sums=recorded is None)
        since = pointer.increment_offset + 1
    for step in Batches(logs.seals).of(logs.increments(since, found.offset + 1)):
        try:
            all_of(apply_changes(step, entries))
        except ChangesLost as error:
            raise _not_recorded(Found(step.offset, step.increment)) from error
    if recorded is None and pointer is None:
        raise _not_recorded(found)
    digest = entries.digest() if recorded is not None else None
    if digest != recorded:
        raise DamagedError(
            f"partition {moment.partition}: the state after batch {found.increment.batch} has digest {digest}, but"
            f" {recorded} was recorded"
        )
    return entries


def _not_recorded(found: Found) -> StateUnreachable:
    return StateUnreachable(
        f"batch {found.increment.batch} at offset {found.offset} recorded no changes: only a replay leads to the state"
        " after it",
        hint="ask for a batch that has a snapshot: the view `snapshots` lists them",
    )

"""A batch, before and after it is applied; which of its records fail, by halves. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct, field

from snapreplay.app.ranges import Anchor, InputRange, SkippedRange
from snapreplay.app.record import Headers, InputRecord, Output
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.contract import Sealed
from snapreplay.state.steps import Steps


class ErrorPolicy(Enum):
    """The treatment of a record that cannot be applied."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


def check_policy(policy: object) -> None:
    """Raise UsageError if it is not an ErrorPolicy. Any str would be taken for DEAD_LETTER."""
    if not isinstance(policy, ErrorPolicy):
        raise UsageError(f"policy={policy!r} is not an ErrorPolicy", hint=f"use {' or '.join(map(str, ErrorPolicy))}")


class Applied(Struct, frozen=True):
    """A batch, applied and sealed: what goes into its transaction.

    Attributes:
        ranges: what was read, in the order applied, skipped records included; empty if the first
            record failed.
        positions: next offset of every input.
        record_count: applied records, without the skipped ones.
        skipped: the dead-lettered records.
        anchors: the last record of each input that had any, applied or skipped.
        outputs: what the handlers sent, in order, without outputs of skipped records.
        outputs_xxh64: output topic → hash of what was sent to it; a replay must give the same.
        dead_letters: one record for the dead-letter topic for each skipped record, in order.
        errors: the reasons, in the order of `dead_letters`.
        sealed: the effect on the state.
        stream_time_ms: highest timestamp of all records so far, applied or skipped; -1 before the first.
        fired_count: timers fired and entries expired after the last record.
        begun_input: what was fired or expired after the last record belongs to the turn of the next record of this
            input; None: nothing was, or to no record's.
        skipped_timers: which of the batch's timers were dead-lettered, counted from 0.
        timers_count, expired_count: in the whole batch.
        begun_periods: how many of the timers did not fire: the first period of a periodic timer began.
        last_timer_id: of the last timer of the batch, as in messages.
        is_full: there was no room for what is due before the record after `ranges`; that record and those
            after it are not covered.
        failure: with policy FAIL, why the record after `ranges`, or a timer before it, could not be
            applied; that record and those after it are not covered.
        handled: input → its records that handlers took, and the seconds in which they did.
        late: window or join → how many records came too late for it.
        contexts: the trace contexts of its records, if they are carried.
    """

    ranges: list[InputRange]
    positions: dict[str, int]
    record_count: int
    skipped: list[SkippedRange]
    anchors: dict[str, Anchor]
    outputs: Sequence[Output]
    outputs_xxh64: dict[str, int]
    dead_letters: list[Output]
    errors: list[RecordError]
    sealed: Sealed
    stream_time_ms: int
    fired_count: int = 0
    begun_input: str | None = None
    skipped_timers: Sequence[int] = ()
    timers_count: int = 0
    expired_count: int = 0
    begun_periods: int = 0
    last_timer_id: str | None = None
    is_full: bool = False
    failure: RecordError | None = None
    handled: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    contexts: Sequence[Headers] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing was read and nothing happened: there is nothing to commit."""
        return not (self.ranges or self.fired_count)


class Portion(Struct, frozen=True):
    """The work of one batch.

    Attributes:
        records: in this order.
        to_ms: after them stream time moves up to this time; None: no further than they move it.
        fired_count: what happens on that way at most; of a replay, what did.
        events_max: how many timers and entries the batch has room for; without room it takes no record either.
        skipped, skipped_timers: of a replay, what was dead-lettered. A skipped record moves stream time, unless its
            timestamp lies far ahead.
        is_recorded: it is a replay: what is not skipped was processed.
        refused: the record or timer that it names fails with it: the broker does not take what comes of it. A periodic
            timer is named without its time.
    """

    records: Sequence[InputRecord] = ()
    to_ms: int | None = None
    fired_count: int = sys.maxsize
    events_max: int = sys.maxsize
    skipped: Sequence[SkippedRange] = ()
    skipped_timers: Sequence[int] = ()
    refused: RecordError | None = None
    is_recorded: bool = False


Feeding = Callable[[Any, Portion], Steps[None]]
"""As `Fold.applying`, of a fold; perhaps in other steps."""


Tried = tuple[RecordError | None, int]
"""The error, and how many records were applied before it; all of them if only staging failed."""

R = TypeVar("R", bound=InputRecord)


def halving(
    records: Sequence[R],
    trying: Callable[[Sequence[R]], Steps[Tried]],
    goes_on_without: Callable[[R, RecordError], bool],
) -> Steps[RecordError | None]:
    """Apply all records with `trying`, which applies all it is given or, after an error, none; a failing record is left
    out if `goes_on_without` says so. Records are staged together, and halved after an error: a batch with one failing
    record costs about two batches. Returns the error that ended it before the last record, or None."""
    # One of the records from `start` to `suspects_end` fails, or several do together.
    start, suspects_end, size = 0, len(records), max(1, len(records) // 2)
    while start < len(records):
        together = records[start : start + size]
        error, applied_count = yield from trying(together)
        if error is None:
            start += len(together)
            size = max(1, (suspects_end - start) // 2) if start < suspects_end else 2 * size
        elif len(together) > 1:
            all_applied = applied_count == len(together)
            suspects_end = start + applied_count + (not all_applied)
            size = max(1, applied_count // 2 if all_applied else applied_count)
        elif goes_on_without(together[0], error):
            start += 1
        else:
            return error
    return None

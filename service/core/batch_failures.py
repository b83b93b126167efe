"""Batches that cannot be applied or committed: how they are cut, what the next ownership must know, and when dead
letters are a flood. Pure.

A batch that the broker refuses, or that never ends in time, would fail the same way for ever. So it is cut into
quarters, down to a single record or timer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from snapreplay.app.app import App
from snapreplay.app.names import place_of_input
from snapreplay.app.ranges import Anchor, InputRange
from snapreplay.app.ways import app_name, go_on, look_again
from snapreplay.errors import RecordError, RecordId, StopError
from snapreplay.service.core.inspected import changes
from snapreplay.service.core.kafka_errors import RefusedRecord, RefusedTopic
from snapreplay.snapshots.format.records import Increment


class Events(NamedTuple):
    """The events that were due in a batch: how many timers and entries that expired, and the last timer, if any."""

    event_count: int = 0
    timer_id: str | None = None


NO_EVENTS = Events()


class BatchBisection(Struct, frozen=True):
    """What the next ownership knows of failures.

    Attributes:
        batch: the batch that failed last, -1: none; `times` in a row.
        records_max: most records, and events, of a batch while an input is below its `until`; None: no limit.
        until_batch: the same limit for batches below this number, because events have no positions.
    """

    batch: int = -1
    times: int = 0
    records_max: int | None = None
    until: Mapping[str, int] = field(default_factory=dict)
    until_batch: int = -1

    def doubted(self, failed: Increment, event_count: int = 0) -> BatchBisection:
        """Count a doubt: once is an accident; from the second time on it may be the batch."""
        again = failed.batch == self.batch
        if not again:
            return replace(self, batch=failed.batch, times=1)
        return self._quartered(failed, self.times + 1, event_count)

    def refused(self, failed: Increment, event_count: int = 0) -> BatchBisection:
        """Count that the broker refused the batch itself."""
        times = self.times + 1 if failed.batch == self.batch else 1
        return self._quartered(failed, times, event_count)

    def _quartered(self, failed: Increment, times: int, event_count: int) -> BatchBisection:
        size = records_in(failed) + event_count
        limit = max(1, size // 4)
        until_batch = failed.batch + size // limit if event_count else -1
        return BatchBisection(failed.batch, times, limit, failed.positions, until_batch)

    def limit_at(self, positions: Mapping[str, int], next_batch: int = sys.maxsize) -> int | None:
        """Return the most records, and events, of the batch of this number from these positions on; None: no limit."""
        below = any(positions.get(topic, 0) < end for topic, end in self.until.items())
        return self.records_max if below or next_batch < self.until_batch else None


def records_in(increment: Increment) -> int:
    """Read by its batch, skipped ones included."""
    return sum(part.record_count for part in increment.ranges)


def only_record(increment: Increment, partition: int) -> RecordId | None:
    """Return the only record of a batch, None when there are more or none."""
    if (part := _only_part(increment)) is None:
        return None
    # A range may begin with offsets that hold no record, it always ends behind one.
    return RecordId(*place_of_input(part.topic, partition), part.end_offset - 1)


def _only_part(increment: Increment) -> InputRange | None:
    if records_in(increment) != 1:
        return None
    (part,) = (part for part in increment.ranges if part.record_count)
    return part


REFUSED_MAX = 3  # of a batch that no record is to blame for


class HandlerFailed(StopError):
    """A record cannot be applied and the policy is `fail`.

    Safe: The record has changed neither the state nor the outputs, and everything before it is committed. The partition
    resumes at exactly this record.
    """


def handler_failed(failure: RecordError, partition: int, app: App[Any]) -> HandlerFailed:
    """Make the error, with the ways on, the safest first, if the failure names none."""
    ways = [
        f"first, deploy a fixed handler, then {go_on(partition)}: it resumes with exactly this record and skips none",
        f"only if the cause was outside the handler and is repaired, {look_again(partition)}: the same handler gets the"
        " record again",
    ]
    if "timestamp_ms" in failure.facts:  # of a record that no handler gets
        ways.clear()
    setting, last = "--set errors.policy=dead_letter`", "as a last resort, " if ways else ""
    ways.append(
        f"{last}send the record to the dead letters: `snapreplay topics ensure {app_name(app)}"
        f" {setting}, then {go_on(partition)} with `{setting}. The record then changes neither the state nor the"
        " outputs"
    )
    return HandlerFailed(failure.message, hint=failure.hint or "; or ".join(ways), record_id=failure.record_id)


class RefusedAgain(StopError):
    """The broker refused the same batch several times, and no single record is the cause.

    Safe: The batch is not committed, but everything before it is. The records of the batch are processed again when the
    partition resumes.
    """


class BatchFailures(Struct, frozen=True):
    """What one ownership tells the next of failed batches.

    Attributes:
        record: the record or timer that the broker refused alone, in batch `record_batch`.
        anchor: of that record: another one may be at its offset by now.
        limits_changed: the broker refused a record, so the limits of topics are not those of the start.
    """

    partition: int
    bisection: BatchBisection = field(default_factory=BatchBisection)
    record: RecordError | None = None
    record_batch: int = -1
    anchor: Anchor | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    limits_changed: bool = False

    def recovered(self, topic_ids: Mapping[str, str]) -> BatchFailures:
        """Continue with today's topics: in a replaced input, another record is at the offset of the one to blame."""
        if changes(self.topic_ids, self.topic_ids, topic_ids):
            return replace(self, record=None)
        return self

    def left_out_at(self, next_batch: int) -> RecordError | None:
        """Return the record or timer that is not tried again; a timer only in its own batch."""
        record = self.record
        is_past = record is not None and record.timer_id is not None
        return None if is_past and next_batch > self.record_batch else record

    def doubted(self, failed: Increment, events: Events = NO_EVENTS) -> BatchFailures:
        return replace(self, bisection=self.bisection.doubted(failed, events.event_count))

    def refused(
        self, failed: Increment, error: RefusedRecord, events: Events = NO_EVENTS
    ) -> tuple[BatchFailures, StopError | None]:
        """Cut a refused batch down to the record or timer to blame, which then counts as failed.
        The second value is the final error, if there is one."""
        cut = replace(
            self,
            bisection=self.bisection.refused(failed, events.event_count),
            limits_changed=self.limits_changed or not isinstance(error, RefusedTopic),
        )
        record_id, timer_id = self._to_blame(failed, events)
        alone = record_id is not None or timer_id is not None
        several = records_in(failed) + events.event_count > 1
        blameless = isinstance(error, RefusedTopic) or not (alone or several)
        if self._is_known(failed, record_id, timer_id) or (blameless and cut.bisection.times >= REFUSED_MAX):
            return cut, RefusedAgain(
                f"batch {failed.batch} was refused repeatedly: {error.message}",
                hint=f"{error.hint}; then {look_again(self.partition)}",
                **error.facts,
            )
        if not alone or blameless:
            return cut, None
        of = record_id or f"timer {timer_id}"
        record = RecordError(
            f"the broker refuses the records that the handler made of {of}: {error.message}",
            record_id=record_id,
            hint=error.hint,
            **error.facts,
        )
        record.timer_id = timer_id
        blamed = replace(
            cut,
            record=record,
            record_batch=failed.batch,
            anchor=failed.anchors.get(part.topic) if record_id and (part := _only_part(failed)) else None,
            topic_ids=failed.topic_ids,
        )
        return blamed, None

    def _to_blame(self, failed: Increment, events: Events) -> tuple[RecordId | None, str | None]:
        """Return what the batch consists of, if it is one record, or one timer."""
        if events.event_count == 0:
            return only_record(failed, self.partition), None
        alone = events.event_count == 1 and records_in(failed) == 0
        return None, events.timer_id if alone else None

    def _is_known(self, failed: Increment, record_id: RecordId | None, timer_id: str | None) -> bool:
        """Say whether the batch holds only what was refused before: then its dead letter is refused, too."""
        known = self.record
        if known is None:
            return False
        if timer_id is not None and known.timer_id is not None:
            # The time of a periodic timer that fires by the clock is another one each time. In a later batch it is the
            # timer's next time, not the refused one.
            same = known.timer_id.rpartition(" at ")[0] == timer_id.rpartition(" at ")[0]
            return same and failed.batch == self.record_batch
        return record_id is not None and known.record_id == record_id


class DeadLetterLimits(Struct, frozen=True):
    """The most that is still no flood: skipped records in a row, and per cent of a window of records."""

    in_a_row: int
    percent: float
    window_records: int


class DeadLetterGauge(Struct, frozen=True):
    """Counts since the window began; a window ends when it is full and is judged only then."""

    in_a_row: int = 0
    window_skipped: int = 0
    window_records: int = 0

    def after(self, applied: int, skipped: int, limits: DeadLetterLimits) -> DeadLetterGauge:
        """Return the gauge after a batch. Any applied record ends a row, so `in_a_row` counts whole batches of
        failures."""
        begun = self if self.window_records < limits.window_records else DeadLetterGauge(self.in_a_row)
        return replace(
            begun,
            in_a_row=0 if applied else begun.in_a_row + skipped,
            window_skipped=begun.window_skipped + skipped,
            window_records=begun.window_records + applied + skipped,
        )

    def flooded(self, limits: DeadLetterLimits) -> str | None:
        """Return which limit was passed, as a clause; None: none."""
        if self.in_a_row > limits.in_a_row:
            return f"{self.in_a_row} records in a row were dead-lettered"
        if self.window_records >= limits.window_records:
            percent = 100.0 * self.window_skipped / self.window_records
            if percent > limits.percent:
                return f"{percent:.0f} % of the last {self.window_records} records were dead-lettered"
        return None

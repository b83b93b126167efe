"""Batches that cannot be applied or committed: what the next ownership must know of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from snapreplay.app.ranges import Anchor
from snapreplay.app.record import InputRecord, id_of
from snapreplay.app.ways import go_on, look_again
from snapreplay.errors import RecordError, RecordId, RetryableError, StopError
from snapreplay.service.core.bisection import (
    NO_EVENTS,
    BatchBisection,
    Events,
    only_record,
    records_in,
)
from snapreplay.service.core.kafka_errors import RefusedRecord, RefusedTopic
from snapreplay.service.core.topic_changes import changes
from snapreplay.snapshots.format.records import Increment

REFUSED_MAX = 3  # of a batch that no record is to blame for


class HandlerFailed(StopError):
    """A record cannot be applied and the policy is `fail`."""


def handler_failed(failure: RecordError, partition: int) -> HandlerFailed:
    """Make the error, with the way on, if the failure names none."""
    return HandlerFailed(
        failure.message,
        hint=failure.hint
        or f"deploy a fixed handler, then {go_on(partition)}: it goes on at exactly this record; or"
        " `--set errors.policy=dead_letter`",
        record_id=failure.record_id,
    )


class HalfApplied(RetryableError):
    """A record cannot be applied, and the state, which cannot roll back, holds a part of its batch.

    The way on: restore it, process what is before the record, and only then fail. `failed` is that failure.
    """

    def __init__(self, failed: HandlerFailed, record_id: RecordId) -> None:
        super().__init__(
            f"{failed.message}; the state is restored before the partition stops at this record"
        )
        self.failed = failed
        self._record_id = record_id

    def is_another(self, record: InputRecord) -> bool:
        """Say whether it is not the record to stop at: another owner may have processed that one meanwhile."""
        return id_of(record) != self._record_id


class RefusedAgain(StopError):
    """The broker refused the same batch several times, and no record of it is to blame."""


@dataclass(frozen=True)
class BatchFailures:
    """The knowledge of failed batches from one ownership to the next.

    Attributes:
        bisection: how the next batches are cut.
        record: the record or timer that the broker refused alone, in batch `record_batch`.
        anchor: of that record: another one may be at its offset by now.
        topic_ids: of the inputs, when it was refused.
        limits_changed: the broker refused a record, so the limits of the topics are other ones than at start.
    """

    partition: int
    bisection: BatchBisection = field(default_factory=BatchBisection)
    record: RecordError | None = None
    record_batch: int = -1
    anchor: Anchor | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    limits_changed: bool = False

    def recovered(self, topic_ids: Mapping[str, str]) -> BatchFailures:
        """Go on with the topics of today: in a replaced input, another record is at the offset of the one to blame."""
        if changes(self.topic_ids, self.topic_ids, topic_ids):
            return replace(self, record=None)
        return self

    def left_out_at(self, next_batch: int) -> RecordError | None:
        """Return the record or timer that is not tried again. A timer was left out in its batch: after that one a
        periodic timer of this name is at another time."""
        record = self.record
        is_past = record is not None and record.timer_id is not None
        return None if is_past and next_batch > self.record_batch else record

    def doubted(self, failed: Increment, events: Events = NO_EVENTS) -> BatchFailures:
        """Count that the batch ended in doubt."""
        return replace(self, bisection=self.bisection.doubted(failed, events.event_count))

    def refused(
        self, failed: Increment, error: RefusedRecord, events: Events = NO_EVENTS
    ) -> tuple[BatchFailures, StopError | None]:
        """Cut a refused batch down to the record or timer to blame. That one then counts as one that cannot be
        applied, and the policy decides. The second value is the final error, if there is one."""
        cut = replace(
            self,
            bisection=self.bisection.refused(failed, events.event_count),
            limits_changed=self.limits_changed or not isinstance(error, RefusedTopic),
        )
        record_id, timer_id = self._to_blame(failed, events)
        alone = record_id is not None or timer_id is not None
        several = records_in(failed) + events.event_count > 1
        blameless = isinstance(error, RefusedTopic) or not (alone or several)
        if self._is_known(failed, record_id, timer_id) or (
            blameless and cut.bisection.times >= REFUSED_MAX
        ):
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
            anchor=failed.anchors.get(record_id.topic) if record_id else None,
            topic_ids=failed.topic_ids,
        )
        return blamed, None

    def _to_blame(self, failed: Increment, events: Events) -> tuple[RecordId | None, str | None]:
        """Return what the batch consists of, if it is one record, or one timer."""
        if events.event_count == 0:
            return only_record(failed, self.partition), None
        alone = events.event_count == 1 and records_in(failed) == 0
        return None, events.timer_id if alone else None

    def _is_known(
        self, failed: Increment, record_id: RecordId | None, timer_id: str | None
    ) -> bool:
        """Say whether the batch holds only what was refused before: then its dead letter is refused, too."""
        known = self.record
        if known is None:
            return False
        if timer_id is not None and known.timer_id is not None:
            # The time of a periodic timer that fires by the clock is another one each time. In a later batch it is the
            # timer's next time, not the one that was refused.
            same = known.timer_id.rpartition(" at ")[0] == timer_id.rpartition(" at ")[0]
            return same and failed.batch == self.record_batch
        return record_id is not None and known.record_id == record_id

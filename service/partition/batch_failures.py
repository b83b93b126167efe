"""Batches that cannot be applied, or not be committed: what the next ownership must know of them."""

from __future__ import annotations

from collections.abc import Mapping

from snapreplay.service.core.caution import Caution, only_record, records_in
from snapreplay.service.core.topic_changes import changes
from snapreplay.service.ports import RefusedRecord, RefusedTopic
from snapreplay.snapshots.errors import RecordError, RetryableError, StopError
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.program.record import InputRecord

REFUSED_MAX = 3  # of a batch that no record is to blame for


class HandlerFailed(StopError):
    """A record cannot be applied and the policy is `fail`."""


class HalfApplied(RetryableError):
    """A record cannot be applied, and the state, which cannot roll back, holds a part of its batch.

    The way on: restore it, process what is before the record, and only then fail. `failed` is that failure.
    """

    def __init__(self, failed: HandlerFailed, record_id: str) -> None:
        super().__init__(
            f"{failed.message}; the state is restored before the partition stops there"
        )
        self.failed = failed
        self._topic, _, offset = record_id.rsplit("-", 2)
        self._offset = int(offset)

    def is_another(self, record: InputRecord) -> bool:
        """Also one behind it: another owner, with another handler, may have processed it meanwhile."""
        return record.topic != self._topic or record.offset != self._offset


class RefusedAgain(StopError):
    """The broker refused the same batch several times, and no record of it is to blame."""


class Refusals:
    """One per runner: what is known from one ownership to the next.

    Attributes:
        caution: how the next batches are cut.
        record: one that the broker does not take, whatever the handler makes of it.
    """

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.caution = Caution()
        self.record: RecordError | None = None
        self._topic_ids: Mapping[str, str] = {}

    def recovered(self, topic_ids: Mapping[str, str]) -> None:
        """These are the topics now: in another one of its name another record has the place of the one at fault."""
        if changes(self._topic_ids, self._topic_ids, topic_ids):
            self.record = None

    def doubted(self, failed: Increment) -> None:
        """The batch ended in doubt."""
        self.caution = self.caution.doubted(failed)

    def refused(self, failed: Increment, error: RefusedRecord) -> StopError | None:
        """The batch was refused: it is cut down to the record that the broker does not take. That one is then a record
        which cannot be applied, and the policy decides. Returns what is final."""
        self.caution = self.caution.refused(failed)
        blameless = isinstance(error, RefusedTopic) or records_in(failed) == 0
        if self._is_known(failed) or (blameless and self.caution.times >= REFUSED_MAX):
            return RefusedAgain(
                f"batch {failed.batch} was refused repeatedly: {error.message}",
                hint=error.hint,
                **error.facts,
            )
        record_id = only_record(failed, self._partition)
        if record_id is not None and not blameless:
            self._topic_ids = failed.topic_ids
            self.record = RecordError(
                f"the broker refuses the records that the handler made of {record_id}: {error.message}",
                record_id=record_id,
                hint=error.hint,
                **error.facts,
            )
        return None

    def _is_known(self, failed: Increment) -> bool:
        """Whether it is the batch of nothing but a record that was refused before: its dead letter is refused, too."""
        known = self.record
        return known is not None and known.record_id == only_record(failed, self._partition)

"""The number of records that the next batch may have, and whether a transaction may be under way beside it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from snapreplay.service.core.bisection import BatchBisection

SLOW_SECONDS = 1.0  # applied for longer: the next batch could outlast the deadline of a commit
ALONE_BATCHES = 16  # after a doubt


class Pace:
    """The pace of one LIVE partition: slower after a failure, and back to the settings as batches are committed.

    Attributes:
        records_max: of the next batch.
    """

    def __init__(self, records_max: int) -> None:
        self._limit = self.records_max = records_max
        self._caution = BatchBisection()
        self._alone_batches = 0

    @property
    def is_alone(self) -> bool:
        """No transaction is to be under way beside a handler."""
        return self._alone_batches > 0

    def careful(
        self, caution: BatchBisection, positions: Mapping[str, int], next_batch: int
    ) -> None:
        """Slow down after a commit that failed, perhaps because of the batch."""
        self._alone_batches = ALONE_BATCHES
        self._caution = caution
        self.records_max = caution.limit_at(positions, next_batch) or self.records_max

    def applied(self, seconds: float) -> None:
        """Note that a batch was applied, in this time."""
        if seconds > SLOW_SECONDS:
            self._alone_batches = max(self._alone_batches, 2)

    def committed(self, positions: Mapping[str, int], next_batch: int) -> None:
        """Note that a batch was committed; the next one has this number and begins at `positions`."""
        self._alone_batches = max(0, self._alone_batches - 1)
        careful_limit = self._caution.limit_at(positions, next_batch)
        self.records_max = careful_limit or min(2 * self.records_max, self._limit)

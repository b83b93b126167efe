"""How a partition goes on at a batch that could not be committed. Pure.

What looks like doubt may be deterministic: a record that the broker refuses, a batch that never ends within its
deadline. The same batch would end the same way for ever, so it is cut into quarters, down to a single record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from snapreplay.errors import RecordId
from snapreplay.snapshots.format.records import Increment


@dataclass(frozen=True)
class BatchBisection:
    """What the next incarnation knows of the failures before it.

    Attributes:
        batch: number of the batch that failed last, -1 when none has; `times` in a row.
        records_max: most records of a batch as long as an input's position is below its `until`; None: no limit.
    """

    batch: int = -1
    times: int = 0
    records_max: int | None = None
    until: Mapping[str, int] = field(default_factory=dict)

    def doubted(self, failed: Increment) -> BatchBisection:
        """Once is an accident; from the second time on it may be the batch."""
        again = failed.batch == self.batch
        if not again:
            return replace(self, batch=failed.batch, times=1)
        return self._quartered(failed, self.times + 1)

    def refused(self, failed: Increment) -> BatchBisection:
        """The broker refused the batch itself."""
        return self._quartered(failed, self.times + 1 if failed.batch == self.batch else 1)

    def _quartered(self, failed: Increment, times: int) -> BatchBisection:
        return BatchBisection(
            failed.batch, times, max(1, records_in(failed) // 4), failed.positions
        )

    def limit_at(self, positions: Mapping[str, int]) -> int | None:
        """The most records of a batch that begins at these positions; None: no limit."""
        below = any(positions.get(topic, 0) < end for topic, end in self.until.items())
        return self.records_max if below else None


def records_in(increment: Increment) -> int:
    """Read by its batch, skipped ones included."""
    return sum(part.record_count for part in increment.ranges)


def only_record(increment: Increment, partition: int) -> RecordId | None:
    """The only record of a batch, None when there are more or none."""
    if records_in(increment) != 1:
        return None
    (part,) = (part for part in increment.ranges if part.record_count)
    # A range may begin with offsets that hold no record, it always ends behind one.
    return RecordId(part.topic, partition, part.end_offset - 1)

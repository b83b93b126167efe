"""The way on at a batch that could not be committed. Pure.

What looks like doubt may be deterministic: a record that the broker refuses, a batch that never ends within its
deadline. The same batch would end the same way for ever, so it is cut into quarters, down to a single record or timer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from snapreplay.errors import RecordId
from snapreplay.snapshots.format.records import Increment


class Events(NamedTuple):
    """The events that were due in a batch: how many timers and entries that expired, and the last timer, if there
    was one."""

    event_count: int = 0
    timer_id: str | None = None


NO_EVENTS = Events()


@dataclass(frozen=True)
class BatchBisection:
    """The knowledge of the next incarnation of the failures before it.

    Attributes:
        batch: number of the batch that failed last, -1 when none has; `times` in a row.
        records_max: most records of a batch, and most events, as long as an input's position is below its `until`;
            None: no limit.
        until_batch: where there were events, it holds for batches below this number as well: events have no positions.
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
        """Return the most records, and events, of a batch with this number that begins at these positions; None: no
        limit."""
        below = any(positions.get(topic, 0) < end for topic, end in self.until.items())
        return self.records_max if below or next_batch < self.until_batch else None


def records_in(increment: Increment) -> int:
    """Read by its batch, skipped ones included."""
    return sum(part.record_count for part in increment.ranges)


def only_record(increment: Increment, partition: int) -> RecordId | None:
    """Return the only record of a batch, None when there are more or none."""
    if records_in(increment) != 1:
        return None
    (part,) = (part for part in increment.ranges if part.record_count)
    # A range may begin with offsets that hold no record, it always ends behind one.
    return RecordId(part.topic, partition, part.end_offset - 1)

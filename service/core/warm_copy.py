"""The state that a standby has in memory, and whether the log leads on from it. Pure."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind, Witness, behind
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import begun_anew_at

RUNS_MAX = 1000


class RecordsSince:
    """Counts the records that were applied after the newest snapshot, by batch, and by runs of batches when there are
    many. A run that a snapshot has in part counts whole: too many is harmless."""

    def __init__(self, last: Increment, records: int) -> None:
        """Take the `records` up to `last` that no snapshot has."""
        self._runs = deque([(last.batch, records)])  # each with its last batch
        self._run_batches = 1
        self._count = records

    def applied(self, increment: Increment) -> int:
        """Return the number with the next batch."""
        self._count += increment.handled_count
        if increment.handled_count:
            self._add(increment.batch, increment.handled_count)
        covered = increment.pointers[0].batch if increment.pointers else -1
        while self._runs and self._runs[0][0] <= covered:
            self._count -= self._runs.popleft()[1]
            self._run_batches = 1
        return self._count

    def _add(self, batch: int, records: int) -> None:
        runs = self._runs
        if runs and runs[-1][0] // self._run_batches == batch // self._run_batches:
            records += runs.pop()[1]
        runs.append((batch, records))
        if len(runs) > RUNS_MAX:
            self._runs, self._run_batches = deque(), 2 * self._run_batches
            for run in runs:
                self._add(*run)


class WarmCopy(Struct, frozen=True):
    """The store holds the state after `last`, proven; the log has all of it. `records_since_snapshot`: as far as is
    known."""

    last: FoundIncrement
    records_since_snapshot: int = 0

    @property
    def base(self) -> Base:
        return Base.of_increment(self.last.increment, self.last.offset)

    def may_lead_to(self, last: FoundIncrement) -> bool:
        """Say whether `last` is the copy's own increment or a later one. Only the links between them, and the digest,
        show that it is of the same chain."""
        if last.offset == self.last.offset:
            return last.increment == self.last.increment
        return last.offset > self.last.offset and last.increment.batch > self.last.increment.batch

    def ahead_of(self, increments: str, last: FoundIncrement) -> IncrementsBehind | None:
        """Return the error if the log has lost a batch that the copy has; None if nothing shows that, or if a decision
        has begun a new chain since."""
        if begun_anew_at(last.increment, last.offset) != begun_anew_at(self.last.increment, self.last.offset):
            return None
        seen = Witness.of(increments, self.last.increment, self.last.offset)
        if not seen.is_ahead(increments, last):
            return None
        return behind("the warm copy of this process", increments, seen, last)

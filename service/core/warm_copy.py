"""The state that a standby has in memory, and whether the log leads on from it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind, Witness, behind
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import begun_anew_at


class RecordsSince:
    """The number of records that were applied after the newest snapshot. A pointer comes later than its snapshot: the
    batches in between are not in it."""

    def __init__(self, last: Increment, records: int) -> None:
        """Take the `records` up to `last` that no snapshot has."""
        self._of_batch = {last.batch: records}
        self._count = records

    def applied(self, increment: Increment) -> int:
        """Return the number with the next batch."""
        self._of_batch[increment.batch] = increment.handled_count
        self._count += increment.handled_count
        covered = increment.pointers[0].batch if increment.pointers else -1
        while self._of_batch and (first := next(iter(self._of_batch))) <= covered:
            self._count -= self._of_batch.pop(first)
        return self._count


@dataclass(frozen=True)
class WarmCopy:
    """The store holds the state after `last`, whose digest was compared. The log has all of it: it may be dropped.

    Attributes:
        is_sealed: the increment has a seal.
        records_since_snapshot: applied after the newest snapshot that `last` points to, as far as is known.
    """

    last: FoundIncrement
    is_sealed: bool = False
    records_since_snapshot: int = 0

    @property
    def base(self) -> Base:
        return Base.of_increment(self.last.increment, self.last.offset, is_sealed=self.is_sealed)

    def may_lead_to(self, last: FoundIncrement) -> bool:
        """Say whether `last` is the copy's own increment or a later one. Only the links between them, and the digest,
        show that it is of the same chain."""
        if last.offset == self.last.offset:
            return last.increment == self.last.increment
        return last.offset > self.last.offset and last.increment.batch > self.last.increment.batch

    def ahead_of(self, increments: str, last: FoundIncrement) -> IncrementsBehind | None:
        """Return the error if the log has lost a batch that the copy has; None if nothing shows that, or if a decision
        has begun the chain anew since."""
        if begun_anew_at(last.increment, last.offset) != begun_anew_at(self.last.increment, self.last.offset):
            return None
        seen = Witness.of(increments, self.last.increment, self.last.offset)
        if not seen.is_ahead(increments, last):
            return None
        return behind("the warm copy of this process", increments, seen, last)

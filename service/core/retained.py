"""States still in memory, and whether the log continues them. Pure.

An ownership that ended in doubt leaves one. A transaction without a clean answer is in the log or not; so the state
need not be read again: the batch in doubt is merged or dropped. A standby has a warm copy, which it has followed.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from snapreplay.service.core.lineage import LastFence, Lineage, is_left_open
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.snapshot_policy import Unpointed
from snapreplay.service.core.witness import IncrementsBehind, Witness, behind
from snapreplay.snapshots.format.records import NO_OFFSET, Increment
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import chain_began_at


class Warm(StrEnum):
    """The way the state in memory became that of the last increment, without a restore."""

    MERGED = "merged"  # the batch in doubt was committed
    DROPPED = "dropped"  # it was not
    KEPT = "kept"  # nothing was in doubt
    COPIED = "copied"  # a standby had it


class Ending(NamedTuple):
    """The end of a transaction without a clean OK. `asked`: its commit was asked for; if not, it can never be
    committed. `output`: topic, partition and offset of one of its outputs."""

    asked: bool
    output: tuple[str, int, int] | None = None


class RetainedState(Struct, frozen=True):
    """The store holds the state after `last`, whose commit was answered OK, and on top of it the batch of `doubtful`,
    whose commit was not.

    Attributes:
        ending: how far the transaction of `doubtful` came.
        unbroken: no other process has fenced since we became the owner, as far as known.
        replaced: the log that we wrote to was replaced or cut.
        fallback_from: of the recovery before, until an increment has recorded it.
        unpointed: what no snapshot covers of the state after `last`.
    """

    last: Increment
    last_offset: int
    doubtful: Increment | None = None
    fallback_from: str | None = None
    unpointed: Unpointed = field(default_factory=Unpointed)
    ending: Ending | None = None
    lineage: Lineage | None = None
    unbroken: bool = True
    replaced: bool = False

    def warm(self, found: FoundIncrement) -> Warm | None:
        """Return what to do when `found` is the last increment; None: the state does not lead there. Whole increments
        are compared."""
        if self.doubtful is not None and found.increment == self.doubtful:
            return Warm.MERGED
        if (found.increment, found.offset) != (self.last, self.last_offset):
            return None
        return Warm.KEPT if self.doubtful is None else Warm.DROPPED

    def after(self, found: FoundIncrement) -> RetainedState:
        """Return what is kept once that is done."""
        if self.doubtful is None or found.increment != self.doubtful:
            return replace(self, doubtful=None)
        newest = found.increment.pointers[:1]
        # No pointer: the snapshots topic was created again, and what the last ones led to is gone.
        unpointed = self.unpointed.applied(found.increment.handled_count)
        if newest and newest != self.last.pointers[:1]:
            unpointed = replace(unpointed, marked_at=0.0).pointed(newest[0].batch)
        return replace(
            self, last=found.increment, last_offset=found.offset, doubtful=None, fallback_from=None, unpointed=unpointed
        )

    def fenced(self, lineage: Lineage, *, unbroken: bool) -> RetainedState:
        """Note that we have fenced. What was broken before stays broken: the next look cannot mend it."""
        unbroken = self.unbroken and unbroken
        return replace(self, lineage=lineage, unbroken=unbroken)

    def has_open(self, last: LastFence | None) -> bool:
        """Say whether one of our transactions, which is never asked to commit, is open, if `last` is the last fence."""
        never_asked = self.ending is not None and not self.ending.asked
        return never_asked and self.lineage is not None and is_left_open(self.lineage, last)

    def led_on(self, found: FoundIncrement) -> RetainedState:
        """Return what is kept when `found` was committed behind `last`, and has the same state."""
        return replace(self, last=found.increment, last_offset=found.offset)

    def written(self, found: FoundIncrement) -> RetainedState:
        """Return what is kept when `found` points to a snapshot of this state: all of it is in the log."""
        return RetainedState(found.increment, found.offset, lineage=self.lineage)

    @property
    def held(self) -> FoundIncrement:
        """The increment whose state the store holds with the batch in doubt merged, as if it were in the log."""
        if self.doubtful is not None:
            return FoundIncrement(self.doubtful, NO_OFFSET)
        return FoundIncrement(self.last, self.last_offset)


def is_ahead(last: Increment) -> bool:
    """Say whether the newest snapshot is of an earlier state than that after `last`: increments lead from one to
    the other, and any of them may have no changes."""
    if not last.anchors and last.stream_time_ms < 0:  # nothing was ever read
        return False
    newest = last.pointers[0].batch if last.pointers else -1
    return not last.is_empty or newest + 1 < last.batch


def needs_inputs(last: Increment) -> bool:
    """Say whether own topics lead to the state after `last` only by a replay, as far as `last` tells."""
    return last.changes is None and is_ahead(last)


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
        if chain_began_at(last.increment, last.offset) != chain_began_at(self.last.increment, self.last.offset):
            return None
        seen = Witness.of(increments, self.last.increment, self.last.offset)
        if not seen.is_ahead(increments, last):
            return None
        return behind("the warm copy of this process", increments, seen, last)

"""What an incarnation that ended in doubt leaves in memory, and what the log makes of it. Pure.

A transaction without a clean answer is either in the log or not; after the fence it stays as it is. So the state need
not be read again: the batch in doubt, still on top of it, is merged or dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from snapreplay.service.core.search import Found
from snapreplay.snapshots.format.records import Increment


class Warm(StrEnum):
    """How the state in memory became that of the last increment, without a restore."""

    MERGED = "merged"  # the batch in doubt was committed
    DROPPED = "dropped"  # it was not
    KEPT = "kept"  # nothing was in doubt


@dataclass(frozen=True)
class Kept:
    """The store holds the state after `last`, whose commit was answered OK, and on top of it, undoable, the batch of
    `doubtful`, whose commit was not.

    Attributes:
        last_offset: of `last` in T-ZengLiang.
        records_since_snapshot: applied up to `last`; too many is harmless, too few is not.
        seconds_since_snapshot: or since the partition was restored, if there was none since.
        fallback_from, fell_back: of the recovery before, as long as no increment has recorded the one and no new
            snapshot ended the other.
    """

    last: Increment
    last_offset: int
    doubtful: Increment | None = None
    records_since_snapshot: int = 0
    fallback_from: str | None = None
    fell_back: bool = False
    seconds_since_snapshot: float = 0.0

    def warm(self, found: Found) -> Warm | None:
        """What to do when `found` is the last increment; None when the state in memory does not lead there.

        Whole increments are compared: owner epoch, batch, predecessor, positions, digest, the time it was written.
        """
        if self.doubtful is not None and found.increment == self.doubtful:
            return Warm.MERGED
        if (found.increment, found.offset) != (self.last, self.last_offset):
            return None
        return Warm.KEPT if self.doubtful is None else Warm.DROPPED

    def after(self, found: Found) -> Kept:
        """What is kept once that is done."""
        if self.doubtful is None or found.increment != self.doubtful:
            return replace(self, doubtful=None)
        pointed = found.increment.pointers[:1] != self.last.pointers[:1]
        return Kept(
            found.increment,
            found.offset,
            records_since_snapshot=self.records_since_snapshot + found.increment.record_count,
            fell_back=self.fell_back and not pointed,
            seconds_since_snapshot=0.0 if pointed else self.seconds_since_snapshot,
        )

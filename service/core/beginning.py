"""The decision whether an app waits for its genesis, as one pure function of what its topics and the coordinator say.

A log without increments is never taken for a new app. So an app is only *awaited* if nothing shows that it ever ran.
Whatever else is found is left to the recoveries: they fail with what was lost, and name the way out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from snapreplay.service.core.lineage import Fencer


class StartFinding(StrEnum):
    """The findings of a starting process."""

    BEGUN = "the partitions can be recovered, or fail with what they lost"
    AWAITED = "the app is new: its genesis is awaited"


@dataclass(frozen=True)
class PartitionTraces:
    """One partition's logs.

    Attributes:
        has_increment: its log leads somewhere.
        is_at_beginning: its last increment is the one that `init` wrote.
        is_untouched: nothing was written behind that increment, not even the claim of an owner.
        log_start_offset: of its increments; above 0, records were deleted.
        has_snapshots: its snapshots log holds, or held, a record.
        fenced_by: who fenced the partition, if its log has no increment.
    """

    has_increment: bool = False
    is_at_beginning: bool = False
    is_untouched: bool = False
    log_start_offset: int = 0
    has_snapshots: bool = False
    fenced_by: Fencer = Fencer.NOBODY

    @property
    def is_empty(self) -> bool:
        """Its logs do not show that a batch was ever committed. Claims do not: an interrupted `init` leaves one."""
        return not (self.has_increment or self.has_snapshots or self.log_start_offset)


def beginning(partitions: Iterable[PartitionTraces]) -> StartFinding:
    """Judge the beginning; `init` begins one partition after the other. As long as some are at their beginning and the
    others are empty, it is under way or was interrupted. A fence without a claim is its own if no owner came to what
    it has begun.
    """
    found = tuple(partitions)
    init_fenced = any(each.is_untouched for each in found)
    is_new = all(
        each.is_at_beginning
        or (each.is_empty and (init_fenced or each.fenced_by is not Fencer.OWNER))
        for each in found
    )
    is_whole = all(each.has_increment for each in found)
    return StartFinding.AWAITED if is_new and not is_whole else StartFinding.BEGUN

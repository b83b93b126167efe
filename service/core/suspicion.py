"""Decides whether a suspicion that another process is dead is acted on, and what ends a takeover that the group has
not heard of. Pure.

The fence makes every mistake safe: a process that lives is fenced and stands back. So mistakes are counted and become
rare, and nothing else is done about them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 10.0, 600.0
QUIET_SECONDS = 1.5
"""An owner that has committed within this time lives, although its HTTP is silent."""


@dataclass(frozen=True)
class FalseAlarms:
    """The suspicions of one process that were false: it was taken over from, and was a member of the group still.

    Attributes:
        times: how many in a row; long after the last one the next is the first again.
        at: the time of the last one, by the loop's clock.
    """

    times: int = 0
    at: float = -math.inf

    @property
    def until(self) -> float:
        """The time up to which suspicions of the process are ignored: 10 s, 20 s … 10 min after the last false one."""
        if not self.times:
            return -math.inf
        return self.at + min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2.0 ** min(self.times - 1, 16))

    def another(self, now: float) -> FalseAlarms:
        """Count one."""
        return FalseAlarms(1 if self.is_over(now) else self.times + 1, now)

    def is_over(self, now: float) -> bool:
        """Say whether the last one is so long ago that it says nothing."""
        return now - self.at > 2 * PAUSE_SECONDS_MAX


@dataclass(frozen=True)
class Takeover:
    """A partition that is processed here before the group has given it to us.

    Attributes:
        process_id: of the owner that seemed to be dead.
        began_at: by the loop's clock, in seconds.
        has_claimed: the log has our claim.
    """

    process_id: str
    began_at: float
    has_claimed: bool = False

    def is_ended(self, *, is_given: bool, is_known: bool, is_fenced: bool) -> bool:
        """Say whether an assignment ends it.

        Args:
            is_given: the assignment gives us the partition.
            is_known: it was made by a leader that knew our claim. Else it is from before, and decides nothing.
            is_fenced: another process has claimed the partition after us.
        """
        return is_given or is_known or is_fenced

"""The times of the commits of a partition: totals, from which any reader has the mean of any interval."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.service.control.vocabulary import Count, Seconds, said

WINDOW_SECONDS = 10.0


class CommitTimes(msgspec.Struct, frozen=True):
    """The commits since this process owns the partition, each from its first send to the broker's answer."""

    total: Count = 0
    seconds_total: Seconds = 0.0
    longest_seconds: Annotated[Seconds, said("Of the 10 to 20 seconds up to the last commit.")] = 0.0


NO_COMMITS = CommitTimes()


class CommitClock:
    """Adds up the commits of one ownership."""

    def __init__(self, before: CommitTimes = NO_COMMITS) -> None:
        """Take what was committed `before`, in other ownerships of this process: totals do not fall."""
        self._total, self._seconds = before.total, before.seconds_total
        self._since = 0.0
        self._longest = self._longest_before = 0.0

    def committed(self, seconds: float, now: float) -> None:
        """Add one that has ended at `now`."""
        if (age := now - self._since) >= WINDOW_SECONDS:
            self._longest_before = self._longest if age < 2 * WINDOW_SECONDS else 0.0
            self._since, self._longest = now, 0.0
        self._total += 1
        self._seconds += seconds
        self._longest = max(self._longest, seconds)

    @property
    def times(self) -> CommitTimes:
        return CommitTimes(self._total, self._seconds, max(self._longest, self._longest_before))

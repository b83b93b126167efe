"""The times of the commits of a partition: totals, from which any reader has the mean of any interval."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.service.control.vocabulary import Count, Seconds, said


class CommitTimes(msgspec.Struct, frozen=True):
    """The commits since this process owns the partition, each from its first send to the broker's answer."""

    total: Count = 0
    seconds_total: Seconds = 0.0
    longest_seconds: Annotated[Seconds, said("Of the 10 to 20 seconds up to the last commit.")] = 0.0


NO_COMMITS = CommitTimes()

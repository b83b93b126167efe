"""The process that owns the partition instead of us. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from snapreplay.errors import ReleaseError, RetryableError
from snapreplay.snapshots.format.records import Claim


class Superseded(ReleaseError):
    """The log shows a newer claim: another process owns the partition."""

    def __init__(self, newer: Claim, partition: int) -> None:
        super().__init__(
            f"process {newer.pid} on host {newer.host} has claimed partition {partition} after us",
            host=newer.host,
            pid=newer.pid,
            instance_id=newer.instance_id,
        )
        self.newer = newer


class TakenAgain(ReleaseError):
    """Others claimed the partition twice within a minute, each time after us."""


class NotAssigned(RetryableError):
    """Another process has fenced us, and the group does not give us the partition."""


IN_A_ROW_SECONDS = 60.0  # taken from us again within it: nobody owns the partition in peace


@dataclass(frozen=True)
class Takeovers:
    """The number of times in a row that another process took the partition, and the last time, by the loop's clock."""

    times: int = 0
    at: float = -math.inf

    def taken(
        self, error: Superseded, partition: int, now: float
    ) -> tuple[Takeovers, ReleaseError]:
        """Count a takeover. The second value is what to report: `error`, or that it happens again and again."""
        if now - self.at >= IN_A_ROW_SECONDS:
            return Takeovers(1, now), error
        newer, times = error.newer, self.times + 1
        return Takeovers(times, now), TakenAgain(
            f"partition {partition} was taken from us {times} times in a row, the last time by"
            f" process {newer.pid} on host {newer.host} (instance id {newer.instance_id!r})",
            hint="stop one of the two processes: either a second deployment uses the same app id, or one of them is cut"
            " off from the group's coordinator",
            host=newer.host,
            pid=newer.pid,
            instance_id=newer.instance_id,
        )

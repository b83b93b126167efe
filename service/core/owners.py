"""The process that owns the partition instead of us, and how long we wait: before the next attempt, after another
process took the partition, and while one that uses the same instance id is there. Pure."""

from __future__ import annotations

import math
import zlib

from msgspec import Struct
from msgspec.structs import replace

from snapreplay.errors import ReleaseError, RetryableError
from snapreplay.snapshots.format.records import Claim

PAUSE_SECONDS_MAX = 60.0
JITTER_RATIO = 0.25


def fenced_pause_seconds(times: int, process_id: str, partition: int) -> float:
    """Return 1 s, 2 s … 60 s for the first, second … time in a row, up to a quarter less: two processes that take a
    partition from each other must not meet again."""
    longest = min(PAUSE_SECONDS_MAX, 2.0 ** min(times - 1, 16))
    share = zlib.crc32(f"{process_id}/{partition}/{times}".encode()) % 1000 / 1000
    return longest * (1.0 - JITTER_RATIO * share)


class RetryBackOff(Struct, frozen=True):
    """The back-off doubles while the same batch fails. After a commit it is the shortest one again."""

    batch: int = -1
    times: int = 0

    def next(self, batch: int) -> RetryBackOff:
        """Count a failure; `batch`: the newest that is committed."""
        return RetryBackOff(batch, self.times + 1 if batch == self.batch else 1)

    def seconds(self, shortest_ms: int, longest_ms: int) -> float:
        """Return how long it is; call it after `next`."""
        return min(shortest_ms << min(self.times - 1, 16), longest_ms) / 1000


class Limits(Struct, frozen=True):
    """The limits of a recovery. `pin_patience_ms`: how long a foreign transaction may pin the last stable offset
    (its own longest timeout plus 15 s). The pause between two attempts doubles from min to max."""

    pin_patience_ms: int = 915_000
    backoff_ms_min: int = 100
    backoff_ms_max: int = 10_000

    def backoff_ms(self, attempt: int) -> int:
        """Return the pause after this attempt, counted from 1."""
        return min(self.backoff_ms_max, self.backoff_ms_min << min(attempt - 1, 16))


class Superseded(ReleaseError):
    """The log shows a newer claim: another process owns the partition."""

    def __init__(self, newer: Claim, partition: int) -> None:
        super().__init__(
            f"process {newer.pid} on host {newer.host} has claimed partition {partition} after this process",
            host=newer.host,
            pid=newer.pid,
            instance_id=newer.instance_id,
        )
        self.newer = newer


class TakenAgain(ReleaseError):
    """Other processes claimed the partition twice within a minute, each time after this one.

    Safe: Each owner resumes where the previous one stopped. Only time is lost, and either process may be stopped.
    """


class NotAssigned(RetryableError):
    """Another process has fenced this one, and the group no longer assigns the partition to this one."""


IN_A_ROW_SECONDS = 60.0  # taken from us again within it: no process keeps the partition


class TakenAway(Struct, frozen=True):
    """The number of times in a row that another process took the partition, and the last time, by the loop's clock."""

    times: int = 0
    at: float = -math.inf

    def taken(self, error: Superseded, partition: int, now: float) -> tuple[TakenAway, ReleaseError]:
        """Count a takeover. The second value is what to report: `error`, or that it happens again and again."""
        if now - self.at >= IN_A_ROW_SECONDS:
            return TakenAway(1, now), error
        newer, times = error.newer, self.times + 1
        return TakenAway(times, now), TakenAgain(
            f"partition {partition} was taken from this process {times} times in a row, the last time by"
            f" process {newer.pid} on host {newer.host} (instance id {newer.instance_id!r})",
            hint="stop one of the two processes: either a second deployment uses the same app id, or one of them is cut"
            " off from the group's coordinator",
            host=newer.host,
            pid=newer.pid,
            instance_id=newer.instance_id,
        )


LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 2.0, 30.0


class SteppedDown(Struct, frozen=True):
    """A process outside the group that looks for a member with the same instance id. A process that is restarted leaves
    and comes back: it has `return_seconds` for that, then it is looked for again."""

    return_seconds: float
    looks: int = 0  # in a row that found it, or got no answer
    gone: bool = False  # the last look did not find it
    over: bool = False  # nor did the look after that

    @property
    def pause_seconds(self) -> float:
        """The time until the next look: 2 s, 4 s … 30 s, and `return_seconds` when it was gone."""
        if self.gone:
            return self.return_seconds
        return float(min(LOOK_SECONDS_MAX, LOOK_SECONDS_MIN * 2 ** min(self.looks, 16)))

    def looked(self, *, there: bool | None) -> SteppedDown:
        """Count a look; None: there was no answer, which says nothing."""
        if there is False:
            return replace(self, looks=0, gone=True, over=self.gone)
        return replace(self, looks=self.looks + 1, gone=False)

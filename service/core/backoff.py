"""The pauses: before the next try, and after another process took the partition. Pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

PAUSE_SECONDS_MAX = 60.0
JITTER_RATIO = 0.25


def fenced_pause_seconds(times: int, process_id: str, partition: int) -> float:
    """Return 1 s, 2 s, 4 s … 60 s for the first, second, third time in a row, up to a quarter less: two processes
    that take a partition from each other must not meet again at the same moment. `times` counts from 1."""
    longest = min(PAUSE_SECONDS_MAX, 2.0 ** min(times - 1, 16))
    share = zlib.crc32(f"{process_id}/{partition}/{times}".encode()) % 1000 / 1000
    return longest * (1.0 - JITTER_RATIO * share)


@dataclass(frozen=True)
class RetryPauses:
    """The pause doubles while the same batch fails. After a commit it is the shortest one again."""

    batch: int = -1
    times: int = 0

    def next(self, batch: int) -> RetryPauses:
        """Count a failure; `batch`: the newest that is committed."""
        return RetryPauses(batch, self.times + 1 if batch == self.batch else 1)

    def seconds(self, shortest_ms: int, longest_ms: int) -> float:
        """Return the pause; call it after `next`."""
        return min(shortest_ms << min(self.times - 1, 16), longest_ms) / 1000


@dataclass(frozen=True)
class Limits:
    """The limits of a recovery. `pin_patience_ms`: how long a foreign transaction may pin the last stable offset
    (its own longest timeout plus 15 s). The pause between two attempts doubles from min to max."""

    pin_patience_ms: int = 915_000
    backoff_ms_min: int = 100
    backoff_ms_max: int = 10_000

    def backoff_ms(self, attempt: int) -> int:
        """Return the pause after this attempt, counted from 1."""
        return min(self.backoff_ms_max, self.backoff_ms_min << min(attempt - 1, 16))

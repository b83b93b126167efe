"""How long a process stands back after another one took its partition. Pure."""

from __future__ import annotations

import zlib

PAUSE_SECONDS_MAX = 60.0
JITTER_RATIO = 0.25


def fenced_pause_seconds(times: int, process_id: str, partition: int) -> float:
    """1 s, 2 s, 4 s … 60 s for the first, second, third time in a row, up to a quarter less: two processes that take
    a partition from each other must not meet again at the same moment. `times` counts from 1."""
    longest = min(PAUSE_SECONDS_MAX, 2.0 ** min(times - 1, 16))
    share = zlib.crc32(f"{process_id}/{partition}/{times}".encode()) % 1000 / 1000
    return longest * (1.0 - JITTER_RATIO * share)

"""Feeding a batch to the fold without keeping the event loop to itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from snapreplay.snapshots.program.fold import Fold
from snapreplay.snapshots.program.record import InputRecord

SLICE_RECORDS = 256
YIELD_AFTER_SECONDS = 0.005  # other partitions, commits and snapshots share this loop


async def feed(fold: Fold, records: Sequence[InputRecord]) -> None:
    """Apply `records` in order. A single slow handler call cannot be interrupted; HTTP and membership live in
    a thread of their own for that reason.

    Raises:
        RecordError: as `Fold.feed`; the batch must be abandoned.
    """
    loop = asyncio.get_running_loop()
    resumed = loop.time()
    for start in range(0, len(records), SLICE_RECORDS):
        fold.feed(records[start : start + SLICE_RECORDS])
        if loop.time() - resumed > YIELD_AFTER_SECONDS:
            await asyncio.sleep(0)
            resumed = loop.time()

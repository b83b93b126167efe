"""Feeds an app on a real broker while its process is killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

from snapreplay import Topic
from snapreplay.app.record import RawRecord
from snapreplay.testing import RealHarness

SETTINGS = {
    "batch": {"records_max": 10},  # so that a kill finds many batches
    "snapshot": {"every_records": 100},
}

Fed = tuple[Topic[Any, Any], str, Any, int]  # topic, key, value, timestamp in ms


async def feed_and_kill(harness: RealHarness[Any], records: Iterable[Fed], kills: int, seed: int) -> list[RawRecord]:
    """Returns the records as they are in the log. The process is killed as often meanwhile, at any moment."""
    records, chance = list(records), random.Random(seed)
    moments = set(chance.sample(range(len(records) // 4, len(records)), kills))
    written, restarts = [], None
    print(f"seed {seed}: killed after {sorted(moments)} of {len(records)} records")  # noqa: T201 - shown when a test fails
    for number, (topic, key, value, timestamp_ms) in enumerate(records):
        written.append(await harness.feed(topic, key=key, value=value, timestamp_ms=timestamp_ms))
        if number in moments:
            if restarts is not None:
                await restarts
            restarts = asyncio.create_task(harness.restart())
    if restarts is not None:
        await restarts
    await harness.caught_up()
    return written

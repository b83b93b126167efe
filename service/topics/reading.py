"""Readers that are closed at the end of a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from snapreplay.service.ports import NO_IDS, Cluster, Reader


@asynccontextmanager
async def reading(
    cluster: Cluster,
    *,
    read_committed: bool = True,
    large: bool = False,
    topic_ids: Mapping[str, str] = NO_IDS,
) -> AsyncIterator[Reader]:
    """Provide a reader for the length of the block; `Cluster.reader` says what the arguments mean."""
    reader = await cluster.reader(read_committed=read_committed, large=large, topic_ids=topic_ids)
    try:
        yield reader
    finally:
        await reader.close()

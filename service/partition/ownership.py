"""Who owns the partition, asked of the log: the only witness that two owners share."""

from __future__ import annotations

from snapreplay.service.partition.context import Context
from snapreplay.service.partition.increments import newer_claim
from snapreplay.snapshots.format.records import Claim


async def newer_owner(context: Context, owner_epoch: int) -> Claim | None:
    """The newest claim after ours, None when nobody claimed since.

    A fence and a transaction timeout raise the same error; only a newer claim tells them apart.

    Raises:
        Unreachable, ReadStalled: the log could not be asked.
    """
    reader = await context.cluster.reader()
    try:
        bounds = await reader.bounds(context.increments)
        after = max(owner_epoch, bounds.start_offset - 1)
        if bounds.end_offset <= after + 1:
            return None
        return await newer_claim(reader, context.increments, after, bounds.end_offset)
    finally:
        await reader.close()

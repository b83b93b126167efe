"""The fence of a partition. Only an `init` goes on with the first fence that the coordinator knows."""

from __future__ import annotations

from snapreplay.service.core.lineage import is_first
from snapreplay.service.ports import Producer
from snapreplay.service.runtime.context import Context


async def fenced(context: Context) -> Producer:
    """Fence for an `init`: this may be the first fence.

    Raises:
        Unreachable, NotAuthenticated, NotAuthorized, StopError: as `ports.Cluster.fence`.
    """
    return await context.cluster.fence(context.transactional_id)


async def fenced_by_owner(context: Context) -> Producer:
    """Fence for an owner: again, if this was the first fence. See `core.lineage.is_first`. Raises as `fenced`."""
    producer = await fenced(context)
    if is_first(producer.lineage):
        await producer.discard()
        producer = await fenced(context)
    return producer

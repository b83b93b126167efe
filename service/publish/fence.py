"""An owner's fence. The coordinator then knows of two fences at least: a single one is that of an `init`."""

from __future__ import annotations

from snapreplay.service.core.lineage import is_first
from snapreplay.service.ports import Producer
from snapreplay.service.runtime.context import Context


async def fenced(context: Context) -> Producer:
    """The fence of an `init`, which may be the first one.

    Raises:
        Unreachable, NotAuthenticated, NotAuthorized, StopError: as `ports.Cluster.fence`.
    """
    return await context.cluster.fence(context.transactional_id)


async def fenced_by_owner(context: Context) -> Producer:
    """The same, once more if the coordinator knew of none: see `core.lineage.is_first`."""
    producer = await fenced(context)
    if is_first(producer.lineage):
        await producer.discard()
        producer = await fenced(context)
    return producer

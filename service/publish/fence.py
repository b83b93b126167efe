"""The fence of a partition. Only an `init` goes on with the first fence that the coordinator knows."""

from __future__ import annotations

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.lineage import is_ending, is_first
from snapreplay.service.core.refusals import TransactionStuck, transaction_stuck
from snapreplay.service.ports import Producer
from snapreplay.service.runtime.context import Context


async def fenced(context: Context) -> Producer:
    """Fence for an `init`: this may be the first fence.

    Raises:
        TransactionStuck: the coordinator does not answer, because it cannot end the last transaction.
        Unreachable, NotAuthenticated, NotAuthorized, StopError: as `ports.Cluster.fence`.
    """
    try:
        return await context.cluster.fence(context.transactional_id)
    except Unreachable as error:
        stuck = await _stuck(context)
        if stuck is None:
            raise
        raise stuck from error


async def _stuck(context: Context) -> TransactionStuck | None:
    transactional_id = context.transactional_id
    try:
        last = await context.cluster.last_fence(transactional_id)
    except SnapreplayError:
        return None  # nothing answers: that is the error
    if last is None or not is_ending(last):
        return None
    return transaction_stuck(context.expected, transactional_id, last)


async def fenced_by_owner(context: Context) -> Producer:
    """Fence for an owner: again, if this was the first fence. See `core.lineage.is_first`. Raises as `fenced`."""
    producer = await fenced(context)
    if is_first(producer.lineage):
        await producer.discard()
        producer = await fenced(context)
    return producer

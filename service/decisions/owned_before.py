"""Whether a partition had an owner that its log does not show: the transaction coordinator remembers fences."""

from __future__ import annotations

import asyncio
from typing import Any

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.errors import StopError
from snapreplay.service.ports import Cluster
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import reading

CLAIM_FOLLOWS_SECONDS = 1.0  # of an `init`, or an owner, that has just fenced


async def was_owned(context: Context) -> bool:
    """Whether somebody fenced whose claim does not appear in this log, even after a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CLAIM_FOLLOWS_SECONDS
    while True:
        late = (
            loop.time() > deadline
        )  # before the log is asked: answers may take longer than a claim
        async with reading(context.cluster, read_committed=False) as reader:
            if (await reader.bounds(context.increments)).end_offset > 0:
                return False
        if not await _was_fenced(context.cluster, context.app, context.partition):
            return False
        if late:
            return True
        await asyncio.sleep(0.1)


async def never_owned(cluster: Cluster, app: App[Any], partition_count: int) -> bool:
    """Whether the coordinator knows no owner of any partition."""
    for partition in range(partition_count):
        if await _was_fenced(cluster, app, partition):
            return False
    return True


async def _was_fenced(cluster: Cluster, app: App[Any], partition: int) -> bool:
    try:
        last = await cluster.last_fence(names.transactional_id(app.app_id, partition))
    except StopError:  # a cluster that does not tell: then any member may have fenced
        return await cluster.member_count(app.app_id) > 0
    # "Empty": an `init` that came no further than its fence
    return last is not None and last.state != "Empty"

"""Writing down a state that no increment has: fence, claim, full snapshot, and the increment that points to it.

That increment begins the chain anew: nothing before its claim is ever walked over. Until it is committed nothing has
changed.
"""

from __future__ import annotations

import getpass
import os
import socket
import uuid

import msgspec

from snapreplay.service.core.search import Window
from snapreplay.service.partition.claiming import claim_record, reader_behind_claim
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.increments import last_in_window
from snapreplay.service.partition.publish import Begun, begin_anew
from snapreplay.service.partition.recoverer import Superseded
from snapreplay.service.partition.report import Reporter
from snapreplay.service.ports import Producer
from snapreplay.service.status import StatusBoard
from snapreplay.snapshots.errors import ReleaseError
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.state.contract import Store


class LogWentOn(ReleaseError):
    """Somebody has committed to the partition since it was examined."""


async def publish(
    context: Context, store: Store, before: Increment, decision: dict[str, str], end_offset: int
) -> Begun:
    """Make the state in `store` the partition's.

    Args:
        before: stands for that state as if it had been committed: batch number, positions, anchors, digest. The
            increment that is written has the number after it.
        decision: who decided what, and why; kept in the increment.
        end_offset: of T-ZengLiang, up to which it was examined.

    Raises:
        LogWentOn, Superseded, Fenced: the partition has an owner who was quicker; nothing was decided.
        CommitInDoubt, Unreachable: the log says what happened; asking again tells.
    """
    producer = await context.cluster.fence(context.transactional_id)
    try:
        epoch = await _claim(context, producer, end_offset)
        standing = msgspec.structs.replace(before, topic_ids=dict(context.view.topic_ids))
        reporter = Reporter(StatusBoard(), context.partition)
        return await begin_anew(context, producer, epoch, store, standing, decision, reporter)
    finally:
        await producer.discard()


async def _claim(context: Context, producer: Producer, end_offset: int) -> int:
    """The owner epoch. Behind it nothing but what was examined: what is decided about is what is there."""
    claim_id = uuid.uuid4().hex
    record = claim_record(context, claim_id)
    (epoch,) = await producer.commit(context.partition, (), (record,))
    async with reader_behind_claim(context, claim_id, epoch) as (reader, seen):
        if seen.newer is not None:
            raise Superseded(seen.newer, context.partition)
        if epoch <= end_offset:
            return epoch
        window = Window(end_offset, epoch, 0)
        newer = await last_in_window(reader, context.increments, window)
    if newer is not None:
        raise LogWentOn(
            f"partition {context.partition} went on to batch {newer.increment.batch} since it was examined:"
            " nothing was decided",
            hint="`snapreplay restore-status` shows whether there is still an error",
        )
    return epoch


def by_whom() -> str:
    """user@host; a container may have no name for its user."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
